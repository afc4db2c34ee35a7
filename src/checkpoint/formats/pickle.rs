//! A pickle as a graph of values. Nothing in it is run: a call is recorded by its callable and arguments.
//!
//! Every value lies once in an arena and text stays in the pickle, so what a pickle can make this reader allocate is a small
//! multiple of its own length, however often its memo is read. (`pytorch-reader` 0.22.1, burn-store's, copies what it reads
//! from the memo and does not count the names of classes, so that a pickle of 2 MB takes gigabytes; and it reads tensors that
//! are lazily negated with the wrong sign.)

use std::collections::HashMap;

/// The pickle of a state dict has about 130 bytes a tensor; this is sixteen thousand tensors.
pub(super) const MAX_PICKLE_BYTES: usize = 2 << 20;

type Result<T> = std::result::Result<T, String>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Id(u32);

#[derive(Debug)]
pub(super) enum Value<'a> {
    Bool(bool),
    Int(i64),
    Text(&'a str),
    /// A tuple, a list or a set.
    List(Vec<Id>),
    Dict(Vec<(Id, Id)>),
    /// A module and a name, with a line break between: two texts would make every value larger.
    Class(&'a str),
    /// An object that a call makes: the callable and its arguments.
    Call(Id, Id),
    /// What an identifier stands for that is kept outside of the pickle.
    Persistent(Id),
    /// None, floats, bytes and integers of more than 64 bits, which describe no tensor.
    Other,
}

/// Values that are never changed lie in the arena once: a byte of the pickle could ask for each.
const OTHER: Id = Id(0);
const TRUE: Id = Id(1);
const FALSE: Id = Id(2);

pub(super) struct Pickle<'a> {
    pub(super) values: Vec<Value<'a>>,
    pub(super) root: Id,
    /// The pickle's bytes, to the full stop that ends it.
    pub(super) length: usize,
}

impl<'a> Pickle<'a> {
    /// Reads the pickle that `bytes` start with.
    ///
    /// Source: `torch._weights_only_unpickler` of PyTorch 2.15. `torch.save` writes these opcodes, those of protocol 2, and
    /// `torch.load` reads no others unless it is told to trust a file.
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self> {
        let values = vec![Value::Other, Value::Bool(true), Value::Bool(false)];
        let pickle = Self { values, root: OTHER, length: bytes.len() };
        let mut machine = Machine { pickle, rest: bytes, stack: Vec::new(), memo: HashMap::new() };
        while machine.step()? {}
        let root = machine.pop()?;
        Ok(Self { root, length: bytes.len() - machine.rest.len(), ..machine.pickle })
    }

    pub(super) fn get(&self, id: Id) -> &Value<'a> {
        &self.values[id.0 as usize]
    }

    /// The items of a tuple or a list; none of anything else.
    pub(super) fn list(&self, id: Id) -> &[Id] {
        if let Value::List(items) = self.get(id) { items } else { &[] }
    }

    pub(super) fn whole(&self, id: Id) -> Option<u64> {
        if let Value::Int(number) = self.get(id) { u64::try_from(*number).ok() } else { None }
    }

    /// The module and the name of a class; empty of anything else.
    pub(super) fn class(&self, id: Id) -> (&'a str, &'a str) {
        let names = if let Value::Class(names) = *self.get(id) { names } else { "" };
        names.split_once('\n').unwrap_or_default()
    }

    /// The value of a key of a dictionary; `None` too of anything else.
    pub(super) fn item(&self, dict: Id, name: &str) -> Option<Id> {
        let Value::Dict(items) = self.get(dict) else { return None };
        let is_named = |(key, _): &&(Id, Id)| matches!(self.get(*key), Value::Text(key) if *key == name);
        // Of equal keys the last one counts, as it does when Python sets them.
        items.iter().rev().find(is_named).map(|(_, value)| *value)
    }
}

/// The stack machine that a pickle is a program of.
struct Machine<'a> {
    /// What was read so far; its length is that of all bytes.
    pickle: Pickle<'a>,
    rest: &'a [u8],
    /// `None` is a mark, which starts a list.
    stack: Vec<Option<Id>>,
    memo: HashMap<u32, Id>,
}

impl<'a> Machine<'a> {
    fn step(&mut self) -> Result<bool> {
        let opcode = self.take(1)?[0];
        let number = self.number(match opcode {
            b'K' | b'h' | b'q' | b'U' | 0x80 | 0x8a => 1,
            b'M' => 2,
            b'J' | b'j' | b'r' | b'X' => 4,
            b'G' => 8,
            _ => 0,
        })?;
        let value = match opcode {
            b'.' => return Ok(false),
            // Of one or two bytes, so no sign is lost.
            b'K' | b'M' => Value::Int(number as i64),
            b'J' => Value::Int((number as u32).cast_signed().into()),
            0x8a => long(self.take(number)?),
            // Python 2 wrote bytes that are not text under the same opcodes.
            b'U' | b'X' => str::from_utf8(self.take(number)?).map_or(Value::Other, Value::Text),
            b']' | b')' | 0x8f => Value::List(Vec::new()),
            b'}' => Value::Dict(Vec::new()),
            b't' => Value::List(self.pop_to_mark()?),
            0x85..=0x87 => {
                // TUPLE1 to TUPLE3 say in the opcode how many.
                let mut items = (0x84..opcode).map(|_| self.pop()).collect::<Result<Vec<_>>>()?;
                items.reverse();
                Value::List(items)
            }
            b'c' => Value::Class(self.two_lines()?),
            b'Q' => Value::Persistent(self.pop()?),
            b'R' | 0x81 => {
                let (args, callable) = (self.pop()?, self.pop()?);
                self.call(callable, args)?
            }
            _ => return self.rearrange(opcode, number).map(|()| true),
        };
        let id = self.add(value)?;
        self.stack.push(Some(id));
        Ok(true)
    }

    fn add(&mut self, value: Value<'a>) -> Result<Id> {
        let values = &mut self.pickle.values;
        // A value of a state dict takes five bytes of the pickle; a forged one could ask for a container a byte.
        if values.len() > self.pickle.length / 2 + 64 {
            return Err("has more objects than a pickle of its length".into());
        }
        values.push(value);
        // No more than bytes of a pickle, which is far shorter than 2³².
        Ok(Id(values.len() as u32 - 1))
    }

    /// Runs an opcode that makes no value of its own.
    fn rearrange(&mut self, opcode: u8, number: u64) -> Result<()> {
        match opcode {
            0x80 => {} // the protocol
            // None; a float, whose eight bytes were read as a number.
            b'N' | b'G' => self.stack.push(Some(OTHER)),
            0x88 => self.stack.push(Some(TRUE)),
            0x89 => self.stack.push(Some(FALSE)),
            b'(' => self.stack.push(None),
            b'a' | b'e' => {
                let new = if opcode == b'a' { vec![self.pop()?] } else { self.pop_to_mark()? };
                match self.top_value()? {
                    Value::List(items) => items.extend(new),
                    _ => return Err("appends to something that is not a list".into()),
                }
            }
            b's' | b'u' => {
                // The value lies above its key.
                let one = |(value, key)| vec![key, value];
                let new = if opcode == b's' { one((self.pop()?, self.pop()?)) } else { self.pop_to_mark()? };
                match self.top_value()? {
                    Value::Dict(items) => items.extend(pairs(&new)?),
                    _ => return Err("sets items of something that is not a dictionary".into()),
                }
            }
            b'h' | b'j' => match self.memo.get(&(number as u32)) {
                Some(id) => self.stack.push(Some(*id)),
                None => return Err(format!("reads {number} of its memo, which is not there")),
            },
            b'q' | b'r' => _ = self.memo.insert(number as u32, self.top()?),
            // BUILD: `__setstate__` is not called; the state of a state dict holds versions of modules.
            b'b' => _ = self.pop()?,
            _ => {
                let problem = "which torch.save writes only if it is told to";
                return Err(format!("has the opcode {opcode:#04x}, {problem}"));
            }
        }
        Ok(())
    }

    fn top(&self) -> Result<Id> {
        // Below a mark are the values of other lists.
        self.stack.last().copied().flatten().ok_or_else(|| "takes a value that is not there".into())
    }

    fn top_value(&mut self) -> Result<&mut Value<'a>> {
        let top = self.top()?;
        Ok(&mut self.pickle.values[top.0 as usize])
    }

    fn pop(&mut self) -> Result<Id> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    fn pop_to_mark(&mut self) -> Result<Vec<Id>> {
        let mark = self.stack.iter().rposition(Option::is_none).ok_or("ends a list that did not start")?;
        Ok(self.stack.split_off(mark).into_iter().flatten().collect())
    }

    fn call(&mut self, callable: Id, args: Id) -> Result<Value<'a>> {
        let pickle = &self.pickle;
        if pickle.class(callable) != ("collections", "OrderedDict") {
            return Ok(Value::Call(callable, args));
        }
        // Its items are mostly set later, so it must be a dictionary by then.
        let mut items = Vec::new();
        for item in pickle.list(args).first().map_or(&[][..], |list| pickle.list(*list)) {
            let Value::List(pair) = pickle.get(*item) else {
                return Err("has an OrderedDict of what are no pairs".into());
            };
            items.extend(pairs(pair)?);
        }
        Ok(Value::Dict(items))
    }

    fn two_lines(&mut self) -> Result<&'a str> {
        let mut ends = (0..self.rest.len()).filter(|&at| self.rest[at] == b'\n');
        let length = ends.nth(1).ok_or_else(truncated)?;
        let lines = self.take(length as u64 + 1)?;
        str::from_utf8(&lines[..length]).map_err(|_| "has a name that is not UTF-8".into())
    }

    /// A little-endian number of up to eight bytes.
    fn number(&mut self, width: usize) -> Result<u64> {
        let mut number = [0; 8];
        number[..width].copy_from_slice(self.take(width as u64)?);
        Ok(u64::from_le_bytes(number))
    }

    fn take(&mut self, count: u64) -> Result<&'a [u8]> {
        let count = usize::try_from(count).map_err(|_| truncated())?;
        let (taken, rest) = self.rest.split_at_checked(count).ok_or_else(truncated)?;
        self.rest = rest;
        Ok(taken)
    }
}

fn pairs(items: &[Id]) -> Result<Vec<(Id, Id)>> {
    match items.as_chunks::<2>() {
        (pairs, []) => Ok(pairs.iter().map(|&[key, value]| (key, value)).collect()),
        _ => Err("has a dictionary with a key and no value".into()),
    }
}

/// A little-endian integer in two's complement.
fn long(bytes: &[u8]) -> Value<'static> {
    // Sign extension.
    let fill = if bytes.last().is_some_and(|&byte| byte >= 0x80) { 0xff } else { 0 };
    let mut number = [fill; 8];
    match number.get_mut(..bytes.len()) {
        Some(start) => start.copy_from_slice(bytes),
        None => return Value::Other,
    }
    Value::Int(i64::from_le_bytes(number))
}

fn truncated() -> String {
    format!("is truncated, or longer than the {MAX_PICKLE_BYTES} bytes that are read")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Opcodes of every form of argument, in which full stops end no pickle.
    #[test]
    fn arguments_of_every_form_are_skipped() {
        let of_one_length: [&[u8]; 5] = [b"K.N.", b"\x80.N.", b"M..N.", b"J....N.", b"G........N."];
        let others: [&[u8]; 4] = [b"U\x03...N.", b"\x8a\x03...N.", b"X\x03\0\0\0...N.", b"c..\n..\nN."];
        for pickle in of_one_length.into_iter().chain(others) {
            let found = [pickle, b"rest"].concat();
            assert_eq!(Pickle::read(&found).unwrap().length, pickle.len(), "{pickle:?}");
            for end in 1..pickle.len() {
                assert!(Pickle::read(&pickle[..end]).is_err(), "{pickle:?}, cut after {end}");
            }
        }
    }

    #[test]
    fn values_are_those_of_pythons_pickle() {
        // pickle.dumps({"a": (1, -2, 300), "b": [True, None, 2**70]}, protocol=2), of CPython 3.12.
        let bytes = b"\x80\x02}q\x00(X\x01\x00\x00\x00aq\x01K\x01J\xfe\xff\xff\xffM,\x01\x87q\x02X\x01\x00\x00\x00bq\x03]q\x04(\x88N\x8a\t\x00\x00\x00\x00\x00\x00\x00\x00@eu.";
        let pickle = Pickle::read(bytes).unwrap();
        let items = |name| {
            let items = pickle.list(pickle.item(pickle.root, name).unwrap()).iter();
            items.map(|id| format!("{:?}", pickle.get(*id))).collect::<Vec<_>>()
        };
        assert_eq!(items("a"), ["Int(1)", "Int(-2)", "Int(300)"]);
        assert_eq!(items("b"), ["Bool(true)", "Other", "Other"]);
    }
}
