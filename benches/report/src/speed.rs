//! The README's table: how many times as fast as its rivals burn-bert is, from the least to the most over the models.

use crate::tables::{Results, numbers};
use anyhow::{Context, Result};

const START: &str = "<!-- speed -->\n";
const END: &str = "<!-- end -->";

/// A table of `RESULTS.md`, a column of it, and what the first two cells of its rows contain.
type Source = (&'static str, String, &'static str);

struct Row {
    name: String,
    /// The two machines of most tables, each without padding and with half padding.
    machines: [Vec<Source>; 4],
    /// Other machines, each with its name.
    others: Vec<(Vec<Source>, &'static str)>,
}

/// The document with the table between its marks.
pub fn insert(document: &str, results: &Results) -> Result<String> {
    let (before, rest) =
        document.split_once(START).context("README.md has no mark for the table of speed")?;
    let (_, after) = rest.split_once(END).context("the README's table of speed has no end")?;
    let mut table =
        "| burn-bert is … times as fast as | AMD¹ | half padding | Intel² | half padding | others |\n"
            .to_string();
    table += "|---|---|---|---|---|---|\n";
    for row in rows() {
        let machines =
            row.machines.iter().map(|sources| range(results, sources)).collect::<Result<Vec<_>>>()?;
        let others =
            row.others.iter().map(|(sources, name)| Ok(format!("{} ({name})", range(results, sources)?)));
        let others = others.collect::<Result<Vec<_>>>()?.join(", ");
        table += &format!("| {} | {} | {others} |\n", row.name, machines.join(" | "));
    }
    Ok(format!("{before}{START}{table}{END}{after}"))
}

fn range(results: &Results, sources: &[Source]) -> Result<String> {
    let mut found = Vec::new();
    for (table, column, rows) in sources {
        let is_meant = |row: &str| rows.split('&').all(|part| row.contains(part));
        found.extend(results.table(table)?.column(column, is_meant)?.into_iter().flat_map(numbers));
    }
    found.sort_by(f64::total_cmp);
    Ok(match found[..] {
        [] => "—".into(),
        [low, .., high] if low < high => format!("{low:.2} to {high:.2}"),
        [value, ..] => format!("{value:.2}"),
    })
}

fn rows() -> Vec<Row> {
    let mut rows: Vec<Row> =
        [("f32", "and fused AdamW", "fused AdamW"), ("bf16", "and bf16 autocast", "PyTorch, bf16")]
            .map(|(precision, masked_lm, classification)| {
                let newer = if precision == "f32" { "head on masked tokens, fused AdamW" } else { masked_lm };
                Row {
                    name: format!("PyTorch, training in {precision}"),
                    machines: [
                        vec![
                            ("masked_lm amd-avx512", ratio_to(masked_lm), ""),
                            // The same step of another run.
                            ("encoders amd-avx512", ratio_to(newer), "ModernBERT&8 × 128, 4"),
                        ],
                        vec![
                            ("classification amd-avx512", ratio_to(classification), ""),
                            ("encoders amd-avx512", ratio_to(newer), "ModernBERT&half padding"),
                        ],
                        vec![("masked_lm intel-amx", ratio_to(masked_lm), "")],
                        vec![],
                    ],
                    others: vec![(vec![("steps h200", ratio_to("PyTorch"), precision)], "H200")],
                }
            })
            .into();
    for (rival, column) in [
        ("PyTorch, inference in f32", "PyTorch"),
        ("ONNX Runtime in f32", "ONNX Runtime"),
        ("OpenVINO in f32", "OpenVINO"),
        ("PyTorch in bf16", "PyTorch, bf16"),
        ("OpenVINO in bf16", "OpenVINO, bf16"),
        ("ONNX Runtime in int8", "ONNX Runtime, int8"),
    ] {
        let machines = [
            ("inference amd-avx512", "no padding"),
            ("inference amd-avx512", "half padding"),
            ("inference intel-amx", "no padding"),
            ("inference intel-amx", "half padding"),
        ];
        let mut others = vec![(vec![("inference amd-zen4", ratio_to(column), "no padding")], "Zen 4⁵")];
        if !column.contains("PyTorch") && !column.contains("bf16") {
            others.push((vec![("inference amd-avx2", ratio_to(column), "")], "AVX2³"));
        }
        rows.push(Row {
            name: rival.into(),
            machines: machines.map(|(table, padding)| vec![(table, ratio_to(column), padding)]),
            others,
        });
    }
    for (name, columns) in [
        ("ONNX Runtime and OpenVINO, one text, f32", &["ONNX Runtime", "OpenVINO"][..]),
        ("ONNX Runtime, one text, int8", &["ONNX Runtime, int8"]),
    ] {
        let others = [
            ("one_text amd-avx2", "AVX2³"),
            ("single intel-avx512", "AVX-512⁴"),
            ("single amd-avx512", "Zen 4⁵"),
        ];
        let others = others.map(|(table, machine)| {
            (columns.iter().map(|column| (table, ratio_to(column), "1 × 16")).collect(), machine)
        });
        rows.push(Row { name: name.into(), machines: Default::default(), others: others.into() });
    }
    let sources =
        ["Burn nn", "Burn nt", "Burn tn"].map(|column| ("rates h200", ratio_to(column), "bf16")).into();
    rows.push(Row {
        name: "PyTorch's matmuls in bf16".into(),
        machines: Default::default(),
        others: vec![(sources, "H200")],
    });
    rows
}

/// The ratio to what stands in this column.
fn ratio_to(column: &str) -> String {
    format!("ratio of {column}")
}
