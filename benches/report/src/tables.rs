//! The tables of `benches/RESULTS.md`.

use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;

pub struct Results(String);

impl Results {
    pub fn read(path: &Path) -> Result<Self> {
        Ok(Self(fs::read_to_string(path).with_context(|| path.display().to_string())?))
    }

    /// The first table between the marks of this name, which ends in the machine.
    pub fn table(&self, name: &str) -> Result<Table> {
        let mark = format!("<!-- {name} -->");
        let block = self.0.split(&mark).nth(1).with_context(|| format!("no {mark} in RESULTS.md"))?;
        let block = block.split("<!-- end -->").next().unwrap_or_default();
        let lines = block.lines().skip_while(|line| !line.starts_with('|'));
        let mut rows = lines.take_while(|line| line.starts_with('|')).map(cells);
        let header = rows.next().with_context(|| format!("{name} has no table"))?;
        Ok(Table { name: name.into(), header, rows: rows.skip(1).collect(), text: block.into() })
    }
}

fn cells(line: &str) -> Vec<String> {
    line.trim_matches('|').split('|').map(|cell| cell.trim().to_string()).collect()
}

pub struct Table {
    name: String,
    header: Vec<String>,
    rows: Vec<Vec<String>>,
    /// All that stands between the marks.
    pub text: String,
}

impl Table {
    /// The cells of a column in the rows whose first two cells, joined, satisfy `is_meant`. `ratio OF X` is the first column `ratio`
    /// after the column X.
    pub fn column(&self, column: &str, is_meant: impl Fn(&str) -> bool) -> Result<Vec<&str>> {
        let (after, wanted) = match column.strip_prefix("ratio of ") {
            Some(rival) => (rival, "ratio"),
            None => (column, column),
        };
        let position = |name: &str, from: usize| {
            self.header.iter().skip(from).position(|cell| cell == name).map(|at| at + from)
        };
        let index = position(after, 0)
            .and_then(|start| position(wanted, start))
            .with_context(|| format!("the table {} has no column {column:?}", self.name))?;
        let rows = self.rows.iter().filter(|row| is_meant(&row[..2].join(", ")));
        let found: Vec<&str> = rows.map(|row| row[index].as_str()).filter(|cell| *cell != "—").collect();
        ensure!(!found.is_empty(), "the table {} has no such rows in the column {column:?}", self.name);
        Ok(found)
    }
}

/// The numbers of a cell such as `66–80 (113–142)` or `1.00× to 1.26×`, without those in brackets.
pub fn numbers(cell: &str) -> Vec<f64> {
    let cell = cell.split('(').next().unwrap_or_default().replace(',', "");
    cell.split(|c: char| !c.is_ascii_digit() && c != '.').filter_map(|number| number.parse().ok()).collect()
}
