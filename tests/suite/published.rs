//! The layouts of published checkpoints, each against Python: `tests/published/make.py` makes the table that is walked here.

use crate::prelude::*;
use burn::tensor::f16;
use safetensors::Dtype;
use safetensors::tensor::{TensorView, serialize};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Cursor, Write as _};
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

/// A tensor of a layout: its key, shape and kind, which is a dtype or, behind `=`, the key of the tensor that it repeats.
struct Published<'a> {
    key: &'a str,
    shape: Vec<usize>,
    kind: &'a str,
}

impl<'a> Published<'a> {
    fn parse(line: &'a str) -> Self {
        let (key, rest) = line.split_once(' ').unwrap();
        let (shape, kind) = rest.split_once(' ').unwrap_or((rest, "f32"));
        Self { key, shape: shape.split('x').map(|size| size.parse().unwrap()).collect(), kind }
    }

    fn source(&self) -> &'a str {
        self.kind.strip_prefix('=').unwrap_or(self.key)
    }

    /// `values` of `make.py`.
    fn values(&self) -> impl Iterator<Item = f32> {
        let seed = self.source().bytes().fold(0xCBF2_9CE4_8422_2325_u64, |seed, byte| {
            (seed ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3)
        });
        let axes = self.shape.len();
        let is_gamma = axes == 1 && ["weight", "gamma"].iter().any(|end| self.source().ends_with(end));
        (1..=self.shape.iter().product::<usize>() as u64).map(move |index| {
            let z = seed.wrapping_add(index.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            let unit = ((z ^ (z >> 31)) >> 11) as f64 / 2f64.powi(52) - 1.0;
            let scaled = if is_gamma { 1.0 + unit / 4.0 } else { unit / if axes > 1 { 2.0 } else { 4.0 } };
            scaled as f32
        })
    }

    fn bytes(&self) -> (Dtype, Vec<u8>) {
        match self.kind {
            "f16" => {
                (Dtype::F16, self.values().flat_map(|value| f16::from_f32(value).to_le_bytes()).collect())
            }
            "i64" => {
                let count = self.shape.iter().product::<usize>() as i64;
                (Dtype::I64, (0..count).flat_map(i64::to_le_bytes).collect())
            }
            _ => (Dtype::F32, self.values().flat_map(f32::to_le_bytes).collect()),
        }
    }
}

fn safetensors_file(tensors: &[Published]) -> Vec<u8> {
    let stored: Vec<_> = tensors.iter().map(Published::bytes).collect();
    let views = tensors.iter().zip(&stored).map(|(tensor, (dtype, bytes))| {
        (tensor.key, TensorView::new(*dtype, tensor.shape.clone(), bytes).unwrap())
    });
    serialize(views, None).unwrap()
}

/// A file as `torch.save` writes it, in which tied tensors share a storage.
fn torch_file(tensors: &[Published]) -> Vec<u8> {
    let (mut pickle, mut storages) = (b"\x80\x02}(".to_vec(), BTreeMap::new());
    let text = |text: &str| [&b"X"[..], &(text.len() as u32).to_le_bytes(), text.as_bytes()].concat();
    let number = |number: usize| [&b"J"[..], &(number as u32).to_le_bytes()].concat();
    for tensor in tensors {
        let place = storages.len();
        let (place, ..) = *storages.entry(tensor.source()).or_insert((place, tensor));
        let class = if tensor.kind == "i64" { "LongStorage" } else { "FloatStorage" };
        let strides: Vec<usize> =
            (1..=tensor.shape.len()).map(|axis| tensor.shape[axis..].iter().product()).collect();
        pickle.extend(text(tensor.key));
        pickle.extend(b"ctorch._utils\n_rebuild_tensor_v2\n((");
        pickle.extend(text("storage"));
        pickle.extend(format!("ctorch\n{class}\n").bytes());
        pickle
            .extend([text(&place.to_string()), text("cpu"), number(tensor.shape.iter().product())].concat());
        pickle.extend(b"tQ");
        pickle.extend(number(0));
        for sizes in [&tensor.shape, &strides] {
            pickle.push(b'(');
            pickle.extend(sizes.iter().flat_map(|&size| number(size)));
            pickle.push(b't');
        }
        pickle.extend(b"\x89ccollections\nOrderedDict\n)RtR");
    }
    pickle.extend(b"u.");
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    let stored = SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    let mut add = |name: &str, bytes: &[u8]| {
        zip.start_file(format!("archive/{name}"), stored).unwrap();
        zip.write_all(bytes).unwrap();
    };
    add("data.pkl", &pickle);
    storages.values().for_each(|(place, tensor)| add(&format!("data/{place}"), &tensor.bytes().1));
    add("version", b"3\n");
    zip.finish().unwrap().into_inner()
}

/// The directory of an entry of the table.
fn directory(entry: &Value, layouts: &Value) -> TempDir {
    let dir = tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    };
    let below = entry["below"].as_str().unwrap_or_default();
    for (name, content) in entry["files"].as_object().unwrap() {
        write(name, content.to_string().as_bytes());
    }
    if !below.is_empty() {
        fs::remove_file(dir.path().join("config.json")).unwrap_or_default();
    }
    // A model without a Transformer has none.
    if entry["config"] != json!({}) {
        write(&format!("{below}config.json"), entry["config"].to_string().as_bytes());
    }
    let mut names = entry["tokenizer"].as_str().unwrap().split(' ');
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/published/tokenizers");
    let folder = names.next().unwrap();
    let folder =
        [own.join(folder), fixture("tokenizer_classes").join(folder)].into_iter().find(|path| path.exists());
    for name in names {
        write(&format!("{below}{name}"), &fs::read(folder.as_ref().unwrap().join(name)).unwrap());
    }
    for (path, layout) in entry["weights"].as_object().unwrap() {
        let lines: Vec<String> = list(&layouts[layout.as_u64().unwrap() as usize]);
        let tensors: Vec<_> = lines.iter().map(|line| Published::parse(line)).collect();
        write(path, &if path.ends_with(".bin") { torch_file(&tensors) } else { safetensors_file(&tensors) });
    }
    dir
}

fn pipeline<M: PretrainedModel>(dir: &Path) -> Result<(M, BertTokenizer), Error> {
    let (model, report) = M::from_pretrained(dir, &device())?;
    assert!(report.is_complete(), "{report}");
    let tokenizer = model.limit_tokenizer(BertTokenizer::from_pretrained(dir)?)?;
    Ok((model, tokenizer))
}

fn flat<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

/// The first and last of the rows of one sequence.
fn ends(rows: Tensor<2>) -> Vec<f64> {
    let last = rows.dims()[0] - 1;
    [0, last].map(|row| flat(rows.clone().narrow(0, row, 1))).concat()
}

/// What `make.py` calls ids, values and labels.
type Computed = (Vec<Vec<u32>>, Vec<Vec<f64>>, Vec<String>);

fn computed(entry: &Value, dir: &Path, texts: &[String]) -> Result<Computed, Error> {
    let tokenizer = BertTokenizer::from_pretrained(dir)?;
    let ids = texts
        .iter()
        .map(|text| Ok(tokenizer.encode(text)?.input_ids().to_vec()))
        .collect::<Result<_, Error>>()?;
    let input =
        |tokenizer: &BertTokenizer, text: &str| tokenizer.batch(&[tokenizer.encode(text)?], &device());
    let mut names = Vec::new();
    let compute_each = |compute: &mut dyn FnMut(&str) -> Result<Vec<f64>, Error>| {
        texts.iter().map(|text| compute(text)).collect::<Result<Vec<_>, Error>>()
    };
    let values = match entry["task"].as_str().unwrap() {
        "base" => {
            // The pooler of another checkpoint than BERT's may be absent.
            let (model, _) = BertModel::from_pretrained(dir, &device())?;
            let tokenizer = model.limit_tokenizer(tokenizer)?;
            compute_each(&mut |text| {
                Ok(ends(
                    model
                        .try_forward(&input(&tokenizer, text)?.input, None)?
                        .last_hidden_state
                        .squeeze_dim(0),
                ))
            })?
        }
        "masked" => {
            let (model, tokenizer) = pipeline::<BertForMaskedLm>(dir)?;
            compute_each(&mut |text| {
                let hidden = model.bert.try_forward(&input(&tokenizer, text)?.input, None)?.last_hidden_state;
                let hidden = hidden.squeeze_dim::<2>(0).narrow(0, 1, 1);
                Ok(flat(model.scores(hidden)?)[..16].to_vec())
            })?
        }
        "sentence" => {
            let (model, tokenizer) = pipeline::<BertForSentenceEmbedding>(dir)?;
            let pipeline = Pipeline::new(model, tokenizer)?;
            let vectors = pipeline.encode(texts, &TextOptions::new())?;
            vectors.iter_dim(0).map(|row| flat(row).into_iter().take(16).collect()).collect()
        }
        "rank" => {
            let pipeline = Pipeline::<BertForSequenceClassification>::from_pretrained(dir, &device())?;
            let mut next = texts.iter().cycle().skip(1);
            compute_each(&mut |text| {
                let ranked = pipeline.rank(text, &[next.next().unwrap()], &TextOptions::new())?;
                Ok(vec![ranked[0].score])
            })?
        }
        "sequence" => {
            let (model, tokenizer) = pipeline::<BertForSequenceClassification>(dir)?;
            names = model.id2label().to_vec();
            compute_each(&mut |text| Ok(flat(model.logits(&input(&tokenizer, text)?.input, None)?)))?
        }
        "tokens" => {
            let (model, tokenizer) = pipeline::<BertForTokenClassification>(dir)?;
            names = model.id2label().to_vec();
            compute_each(&mut |text| {
                Ok(ends(model.logits(&input(&tokenizer, text)?.input, None)?.squeeze_dim(0)))
            })?
        }
        "replaced" => {
            let (model, tokenizer) = pipeline::<ElectraForPreTraining>(dir)?;
            compute_each(&mut |text| {
                Ok(ends(model.logits(&input(&tokenizer, text)?.input, None)?.transpose()))
            })?
        }
        "answers" => {
            let (model, tokenizer) = pipeline::<BertForQuestionAnswering>(dir)?;
            compute_each(&mut |text| {
                let logits = model.logits(&input(&tokenizer, text)?.input, None)?;
                Ok(logits.map(|logits| ends(logits.transpose())).concat())
            })?
        }
        task => panic!("{task} is no task"),
    };
    Ok((ids, values, names))
}

/// Saves an entry's model and tokenizer anew.
fn save_again(entry: &Value, from: &Path, to: &Path) -> Result<(), Error> {
    fn save<M: PretrainedModel>(from: &Path, to: &Path) -> Result<(), Error> {
        M::from_pretrained(from, &device())?.0.save_pretrained(to)
    }
    match entry["task"].as_str().unwrap() {
        "base" => save::<BertModel>(from, to)?,
        "masked" => save::<BertForMaskedLm>(from, to)?,
        "sentence" => save::<BertForSentenceEmbedding>(from, to)?,
        "tokens" => save::<BertForTokenClassification>(from, to)?,
        "replaced" => save::<ElectraForPreTraining>(from, to)?,
        "answers" => save::<BertForQuestionAnswering>(from, to)?,
        _ => save::<BertForSequenceClassification>(from, to)?,
    }
    BertTokenizer::from_pretrained(from)?.save_pretrained(to)
}

/// What `docs/models.md` says of an entry, or what is wrong.
fn outcome(entry: &Value, dir: &Path, texts: &[String]) -> Result<String, String> {
    let found = computed(entry, dir, texts).and_then(|found| {
        let saved = tempdir().unwrap();
        save_again(entry, dir, saved.path())?;
        let (ids, values, names) = computed(entry, saved.path(), texts)?;
        let is_same = values.concat().iter().zip(found.1.concat()).all(|(a, b)| (a - b).abs() < 1e-6);
        assert!(ids == found.0 && names == found.2 && is_same, "{} is saved as another model", entry["name"]);
        Ok(found)
    });
    let found = found.map_err(|error| {
        let source = std::error::Error::source(&error).map(|source| format!(" <- {source}"));
        let text = format!("{error}{}", source.unwrap_or_default());
        text.replace(&format!("{}/", dir.display()), "").replace(&dir.display().to_string(), "the directory")
    });
    let (ids, values, names) = match (found, entry["refused"].as_str()) {
        (Ok(found), None) => found,
        (Ok(_), Some(_)) => return Err("is not refused".into()),
        (Err(error), Some(reason)) if error.contains(reason) => {
            let reason = error.split("model types that can be read").next().unwrap();
            return Ok(format!("no: {}", reason.trim_end_matches([' ', ':', ';'])));
        }
        (Err(error), _) => return Err(error),
    };
    if json!(ids) != entry["ids"] {
        return Err(format!("has the ids {ids:?}, not {}", entry["ids"]));
    }
    if let Some(labels) = entry.get("labels").filter(|labels| **labels != json!(names)) {
        return Err(format!("has the labels {names:?}, not {labels}"));
    }
    let expected: Vec<Vec<f64>> = list(&entry["values"]);
    let (found, expected) = (values.concat(), expected.concat());
    let difference = found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    // Values of unit size, computed in f32 here and in f64 there.
    if found.len() != expected.len() || difference.is_nan() || difference > 2e-5 {
        return Err(format!("differs by {difference:e}; {} values, not {}", found.len(), expected.len()));
    }
    Ok(entry["note"].as_str().map_or("yes".into(), |note| format!("yes: {note}")))
}

/// What comes before the rows of `docs/models.md`.
const HEAD: &str = "# Published models

Each row is a repository of the Hugging Face Hub. Its layout (every field of `config.json` but sizes, tokenizer files, modules, names
and dtypes of the weights) is made again with small sizes in `tests/published`, and loaded by this crate
and by Python: the ids of three multilingual texts are equal, and values agree to 2e-5 in f32. The published weights themselves
were not loaded for this table, which a test writes and compares. Other models of these [families](checkpoints.md#families) load
too; a directory whose files are laid out otherwise is refused with the reason.

| model | task | loads |
|---|---|---|
";

#[test]
fn each_published_checkpoint_gives_pythons_values_or_is_refused_with_the_reason() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let table = json(root.join("tests/published/checkpoints.json"));
    let texts: Vec<String> = list(&table["texts"]);
    let (mut problems, mut page) = (String::new(), HEAD.to_string());
    let entries = table["checkpoints"].as_array().unwrap();
    for entry in entries {
        let (name, task) = (entry["name"].as_str().unwrap(), entry["task"].as_str().unwrap());
        let dir = directory(entry, &table["layouts"]);
        let repository = name.split('@').next().unwrap();
        match outcome(entry, dir.path(), &texts) {
            Ok(_) if name.starts_with("variant: ") => {}
            Ok(loads) => {
                let loads = loads.replace('|', "\\|");
                writeln!(
                    page,
                    "| [{name}](https://huggingface.co/{repository}) | {} | {loads} |",
                    task_name(task)
                )
                .unwrap();
            }
            Err(problem) => writeln!(problems, "{name}: {problem}").unwrap(),
        }
    }
    assert!(problems.is_empty(), "{} of {}:\n{problems}", problems.lines().count(), entries.len());
    assert!(entries.len() >= 80);
    let path = root.join("docs/models.md");
    if std::env::var_os("BURN_BERT_WRITE").is_some() {
        fs::write(&path, &page).unwrap();
    }
    let hint = "docs/models.md is stale; run this test with BURN_BERT_WRITE=1";
    assert!(fs::read_to_string(path).unwrap_or_default() == page, "{hint}");
}

fn task_name(task: &str) -> &str {
    match task {
        "base" => "the model without a head",
        "masked" => "fill-mask",
        "sentence" => "sentence embeddings",
        "rank" => "reranking",
        "sequence" => "text classification",
        "tokens" => "token classification",
        "answers" => "question answering",
        _ => "replaced tokens",
    }
}
