//! The charts of `docs/performance.md`: bars in groups, a panel for each machine or model.

use crate::tables::{Results, numbers};
use anyhow::Result;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

const OURS: [RGBColor; 2] = [RGBColor(200, 75, 30), RGBColor(240, 150, 90)];
const PYTORCH: RGBColor = RGBColor(90, 100, 115);
const ONNX: RGBColor = RGBColor(95, 155, 205);
const ONNX_INT8: RGBColor = RGBColor(165, 205, 235);
const OPENVINO: RGBColor = RGBColor(110, 170, 110);

struct Panel {
    title: String,
    groups: Vec<Group>,
}

struct Group {
    name: String,
    bars: Vec<Bar>,
}

struct Bar {
    color: RGBColor,
    height: f64,
    label: String,
}

type Legend<'a> = &'a [(&'a str, RGBColor)];

/// Each chart with the name of its file.
pub fn all(results: &Results) -> Result<[(&'static str, String); 4]> {
    Ok([
        ("training", training(results)?),
        ("inference", inference(results)?),
        ("memory", memory(results)?),
        ("one_text", one_text(results)?),
    ])
}

const MACHINES: [(&str, &str); 2] =
    [("amd-avx512", "AMD EPYC, AVX-512, two cores"), ("intel-amx", "Intel Xeon, AMX, two cores")];

fn training(results: &Results) -> Result<String> {
    let panels = MACHINES.map(|(machine, title)| {
        let table = results.table(&format!("masked_lm {machine}"))?;
        let mut groups = Vec::new();
        for (precision, ours, rival) in
            [("f32", "burn-bert", "and fused AdamW"), ("bf16", "burn-bert, bf16", "and bf16 autocast")]
        {
            for model in ["MiniLM-L6", "BERT-base", "ModernBERT-base"] {
                let is_meant = |row: &str| row.starts_with(model);
                let [a, b] = [ours, rival]
                    .map(|column| table.column(column, is_meant).map(|cells| numbers(cells[0])[0]));
                let (a, b) = (a?, b?);
                groups.push(Group {
                    name: format!("{model}\n{precision}"),
                    bars: vec![bar(OURS[0], a / b, format!("{a}")), bar(PYTORCH, 1.0, format!("{b}"))],
                });
            }
        }
        Ok(Panel { title: title.into(), groups })
    });
    let title = "Training, 8 × 128 tokens: speed, PyTorch = 1. The numbers are tokens per second";
    draw(title, &each(panels)?, &[("burn-bert", OURS[0]), ("PyTorch", PYTORCH)])
}

fn inference(results: &Results) -> Result<String> {
    let panels = MACHINES.map(|(machine, title)| {
        let table = results.table(&format!("inference {machine}"))?;
        let mut groups = Vec::new();
        for (precision, columns) in [
            (
                "f32",
                &[
                    ("burn-bert, f32", OURS[0]),
                    ("PyTorch", PYTORCH),
                    ("ONNX Runtime", ONNX),
                    ("OpenVINO", OPENVINO),
                ][..],
            ),
            (
                "bf16",
                &[("burn-bert, bf16", OURS[0]), ("PyTorch, bf16", PYTORCH), ("OpenVINO, bf16", OPENVINO)],
            ),
            ("int8", &[("burn-bert, int8", OURS[0]), ("ONNX Runtime, int8", ONNX)]),
        ] {
            for padding in ["no padding", "half padding"] {
                let mut bars = Vec::new();
                for (column, color) in columns {
                    let cells =
                        table.column(column, |row| row.starts_with("BERT-base") && row.contains(padding))?;
                    bars.push(bar(*color, numbers(cells[0])[0], cells[0].into()));
                }
                groups.push(Group { name: format!("{precision}\n{padding}"), bars });
            }
        }
        Ok(Panel { title: title.into(), groups })
    });
    let legend: Legend =
        &[("burn-bert", OURS[0]), ("PyTorch", PYTORCH), ("ONNX Runtime", ONNX), ("OpenVINO", OPENVINO)];
    draw("Inference, BERT-base, 16 × 128 tokens: milliseconds, less is better", &each(panels)?, legend)
}

fn memory(results: &Results) -> Result<String> {
    let tables = [results.table("growth intel-amx")?, results.table("encoders amd-avx512")?];
    let lines = tables.iter().flat_map(|table| table.text.lines()).collect::<Vec<_>>();
    let panels = [("f32", ""), ("bf16", ", bf16")].map(|(title, suffix)| {
        let mut groups = Vec::new();
        for (model, name, shapes) in [
            ("MiniLM-L6 (6 layers, H 384)", "MiniLM-L6", ["32 × 128", "8 × 512"]),
            ("ModernBERT-base", "ModernBERT-base", ["8 × 512", "1 × 4096"]),
            ("nomic-embed-text-v1.5", "nomic-embed", ["8 × 512", "1 × 4096"]),
        ] {
            for shape in shapes {
                let start = format!("- {model}, {shape}{suffix}:");
                let line = lines.iter().find(|line| line.starts_with(&start));
                let (_, peaks) = line.and_then(|line| line.split_once("host's memory ")).unwrap_or_default();
                let [ours, theirs] = numbers(peaks)[..] else {
                    anyhow::bail!("RESULTS.md has no peaks of {start}")
                };
                let bars =
                    [(OURS[0], ours), (PYTORCH, theirs)].map(|(color, mb)| bar(color, mb, mb.to_string()));
                groups.push(Group { name: format!("{name}\n{shape}"), bars: bars.into() });
            }
        }
        Ok(Panel { title: title.into(), groups })
    });
    let title =
        "Training, 4,096 tokens in rows of different lengths: peak memory of a step in MB, less is better";
    draw(title, &each(panels)?, &[("burn-bert", OURS[0]), ("PyTorch", PYTORCH)])
}

fn one_text(results: &Results) -> Result<String> {
    let table = results.table("single intel-avx512")?;
    let columns = [
        ("burn-bert, f32", OURS[0]),
        ("PyTorch", PYTORCH),
        ("ONNX Runtime", ONNX),
        ("OpenVINO", OPENVINO),
        ("burn-bert, int8", OURS[1]),
        ("ONNX Runtime, int8", ONNX_INT8),
    ];
    let panels = ["MiniLM-L6", "BERT-base", "ModernBERT-base"].map(|model| {
        let mut groups = Vec::new();
        for shape in ["1 × 16", "1 × 128", "4 × 32"] {
            let is_meant = |row: &str| row.starts_with(model) && row.contains(shape);
            let mut bars = Vec::new();
            for (column, color) in columns {
                let cell = table.column(column, is_meant)?[0];
                bars.push(bar(color, numbers(cell)[0], cell.into()));
            }
            groups.push(Group { name: shape.into(), bars });
        }
        Ok(Panel { title: format!("{model}, Intel Xeon with AVX-512, two cores"), groups })
    });
    let legend = columns.map(|(column, color)| (column.trim_end_matches(", f32"), color));
    draw("One text at a time: milliseconds, less is better", &each(panels)?, &legend)
}

fn bar(color: RGBColor, height: f64, label: String) -> Bar {
    Bar { color, height, label }
}

fn each<const N: usize>(panels: [Result<Panel>; N]) -> Result<Vec<Panel>> {
    panels.into_iter().collect()
}

const WIDTH: i32 = 1040;
const PANEL: i32 = 250;
const TOP: i32 = 62;

/// A picture with its own background, readable on dark pages.
fn draw(title: &str, panels: &[Panel], legend: Legend) -> Result<String> {
    let mut svg = String::new();
    let height = TOP + PANEL * panels.len() as i32;
    {
        let root = SVGBackend::with_string(&mut svg, (WIDTH as u32, height as u32)).into_drawing_area();
        root.fill(&WHITE)?;
        let text = |text: &str, at: (i32, i32), size: i32, pos: HPos| {
            let font = ("sans-serif", size).into_font().color(&BLACK);
            root.draw(&Text::new(text.to_string(), at, font.pos(Pos::new(pos, VPos::Center))))
        };
        let fill = |[left, top, right, bottom]: [i32; 4], color: RGBColor| {
            root.draw(&Rectangle::new([(left, top), (right, bottom)], color.filled()))
        };
        text(title, (16, 18), 17, HPos::Left)?;
        for ((name, color), left) in legend.iter().zip((16..).step_by(160)) {
            fill([left, 36, left + 14, 50], *color)?;
            text(name, (left + 20, 44), 13, HPos::Left)?;
        }
        for (panel, top) in panels.iter().zip((TOP..).step_by(PANEL as usize)) {
            text(&panel.title, (16, top + 14), 14, HPos::Left)?;
            let floor = top + PANEL - 44;
            let bars = panel.groups.iter().flat_map(|group| &group.bars);
            let highest = bars.clone().fold(0.0, |highest: f64, bar| highest.max(bar.height));
            let gap = 34;
            let slots = bars.count() as i32;
            let width = (WIDTH - 32 - gap * panel.groups.len() as i32) / slots;
            let mut left = 16 + gap / 2;
            for group in &panel.groups {
                let middle = left + width * group.bars.len() as i32 / 2;
                for bar in &group.bars {
                    let height = (bar.height / highest * f64::from(PANEL - 100)) as i32;
                    fill([left + 1, floor - height, left + width - 1, floor], bar.color)?;
                    text(&bar.label, (left + width / 2, floor - height - 9), 12, HPos::Center)?;
                    left += width;
                }
                for (line, y) in group.name.lines().zip((floor + 12..).step_by(15)) {
                    text(line, (middle, y), 12, HPos::Center)?;
                }
                left += gap;
            }
            fill([16, floor, WIDTH - 16, floor + 1], BLACK)?;
        }
        root.present()?;
    }
    Ok(svg)
}
