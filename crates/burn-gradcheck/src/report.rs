use burn::tensor::DType;
use std::fmt;

/// The result of a [`GradCheck`](crate::GradCheck), parameter by parameter.
///
/// Printed, it is a table with one line per parameter and one per excluded row.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct GradCheckReport {
    /// The dtype that losses and gradients were computed in.
    pub dtype: DType,
    /// The tolerance that was asked for. What decided is [`ParameterReport::tolerance`].
    pub tolerance: Tolerance,
    /// The loss of the module as it is.
    pub loss: f64,
    /// Every float parameter, in the module's order; then the input, if one was checked.
    pub parameters: Vec<ParameterReport>,
    /// The rows that were held against an expected gradient instead of a difference quotient.
    pub excluded_rows: Vec<ExcludedRowReport>,
}

/// The result of one parameter in a [`GradCheck`](crate::GradCheck).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ParameterReport {
    /// The parameter's path in the module, as in a record; `input` for a checked input, empty where the module is itself one `Param`.
    pub path: String,
    /// The parameter's shape.
    pub shape: Vec<usize>,
    /// What was compared.
    pub coverage: Coverage,
    /// The tolerance that decided: that of the check, its absolute part larger by 4·ε·|L| / h, the rounding of the loss.
    pub tolerance: Tolerance,
    /// Whether the backward pass produced a gradient. Where it did not, 0 was compared.
    pub has_gradient: bool,
    /// The largest |analytic − numeric|.
    pub max_absolute_error: f64,
    /// The largest |analytic − numeric| / max(|analytic|, |numeric|, absolute / relative tolerance of the check), for a
    /// direction with ‖∇L‖ among those. The tolerance keeps differences between two numbers next to zero from counting.
    pub max_relative_error: f64,
    /// The comparison that came closest to its tolerance, or went furthest past it.
    pub worst: Option<Worst>,
    /// Whether the rounding of the loss hides what was compared: it is larger than the absolute tolerance of the check and than a
    /// tenth of the largest derivative, so that a wrong gradient would be within the tolerance. Make the loss smaller, or check
    /// in f64.
    pub lost_in_rounding: bool,
    /// Whether every comparison was finite, within the tolerance, and not [lost in rounding](Self::lost_in_rounding). True where
    /// nothing was compared.
    pub passed: bool,
}

/// How much of a parameter a [`GradCheck`](crate::GradCheck) compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coverage {
    /// The number of entries that were checked one by one: all of them, less the excluded rows; none where those are all.
    Entries(usize),
    /// The derivative along this many random directions through all entries, less the excluded rows.
    Directions(usize),
    /// Nothing: the parameter is frozen.
    Frozen,
}

/// One comparison of a [`GradCheck`](crate::GradCheck).
#[derive(Debug, Clone, PartialEq)]
pub struct Worst {
    /// The entry or direction that was compared.
    pub place: Place,
    /// The gradient that the backward pass gave.
    pub analytic: f64,
    /// The central difference.
    pub numeric: f64,
}

/// What a [`GradCheck`](crate::GradCheck) varied for a difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// One entry, by its index on every axis.
    Entry(Vec<usize>),
    /// A random direction, counted from 0.
    Direction(usize),
}

/// The result of a row that is compared with an expected gradient: see
/// [`GradCheck::with_excluded_row`](crate::GradCheck::with_excluded_row).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ExcludedRowReport {
    /// The parameter.
    pub path: String,
    /// The row on its outermost axis.
    pub row: usize,
    /// The gradient that every entry of the row must have, exactly.
    pub expected: f64,
    /// the index of the entry within the row, and its gradient, for the entry furthest from that.
    pub furthest: (usize, f64),
    /// Entries in the row.
    pub entries: usize,
    /// Whether every entry is `expected`.
    pub passed: bool,
}

impl GradCheckReport {
    /// Whether every parameter and every excluded row passed.
    pub fn passes(&self) -> bool {
        self.parameters.iter().all(|parameter| parameter.passed)
            && self.excluded_rows.iter().all(|row| row.passed)
    }

    /// Panics, with the table as the message, unless the check [`passes`](Self::passes).
    #[track_caller]
    pub fn assert_passes(&self) {
        let is_lost = |parameter: &ParameterReport| parameter.passed || parameter.lost_in_rounding;
        let is_wrong =
            !self.parameters.iter().all(is_lost) || !self.excluded_rows.iter().all(|row| row.passed);
        assert!(!is_wrong, "the analytic gradient is wrong\n{self}");
        let problem =
            "gradients are lost in the rounding of the loss: make the loss smaller, or check in f64";
        assert!(self.passes(), "{problem}\n{self}");
    }

    /// The parameter at `path`.
    pub fn parameter(&self, path: &str) -> Option<&ParameterReport> {
        self.parameters.iter().find(|parameter| parameter.path == path)
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entries(1) => f.write_str("1 entry"),
            Self::Entries(n) => write!(f, "{n} entries"),
            Self::Directions(1) => f.write_str("1 direction"),
            Self::Directions(n) => write!(f, "{n} directions"),
            Self::Frozen => f.write_str("nothing"),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entry(index) => write!(f, "{index:?}"),
            Self::Direction(number) => write!(f, "direction {number}"),
        }
    }
}

impl fmt::Display for GradCheckReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let header = ["parameter", "shape", "checked", "abs error", "abs allowed", "rel error", "worst at"];
        let mut table = vec![header.map(str::to_owned).to_vec()];
        table[0].extend(["analytic", "numeric", "verdict"].map(str::to_owned));
        for parameter in &self.parameters {
            table.push(parameter.cells());
            let rows = self.excluded_rows.iter().filter(|row| row.path == parameter.path);
            table.extend(rows.map(ExcludedRowReport::cells));
        }
        let width = |column: usize| table.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..table[0].len()).map(width).collect();
        writeln!(f, "{:?}, {}, loss {:.6e}", self.dtype, self.tolerance, self.loss)?;
        for row in &table {
            let mut line = String::new();
            for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                line += &match column {
                    // Text to the left, numbers to the right.
                    0..=2 | 6 | 9 => format!("{cell:<width$}  "),
                    _ => format!("{cell:>width$}  "),
                };
            }
            // The last column is filled up with spaces, too.
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

fn verdict(passed: bool) -> String {
    if passed { "pass".into() } else { "FAIL".into() }
}

impl ParameterReport {
    fn cells(&self) -> Vec<String> {
        let path = if self.path.is_empty() { "(module)".into() } else { self.path.clone() };
        let [error, allowed, relative, place, analytic, numeric] = match &self.worst {
            Some(Worst { place, analytic, numeric }) => [
                format!("{:.1e}", self.max_absolute_error),
                format!("{:.1e}", self.tolerance.absolute),
                format!("{:.1e}", self.max_relative_error),
                place.to_string(),
                if self.has_gradient { format!("{analytic:.7e}") } else { "none".into() },
                format!("{numeric:.7e}"),
            ],
            None => Default::default(),
        };
        let verdict = match self.coverage {
            Coverage::Frozen => "frozen".into(),
            Coverage::Entries(0) => "not compared".into(),
            _ if self.lost_in_rounding => "LOST IN ROUNDING".into(),
            _ => verdict(self.passed),
        };
        let (shape, coverage) = (format!("{:?}", self.shape), self.coverage.to_string());
        vec![path, shape, coverage, error, allowed, relative, place, analytic, numeric, verdict]
    }
}

impl ExcludedRowReport {
    fn cells(&self) -> Vec<String> {
        let (column, found) = self.furthest;
        let (row, coverage) = (format!("  row {}", self.row), Coverage::Entries(self.entries).to_string());
        let error = format!("{:.1e}", (found - self.expected).abs());
        let (place, expected) =
            (format!("[{}, {column}]", self.row), format!("expected {:?}", self.expected));
        let (found, none, verdict) = (format!("{found:?}"), String::new, verdict(self.passed));
        vec![row, none(), coverage, error, none(), none(), place, found, expected, verdict]
    }
}

/// How far an analytic gradient may be from the difference quotient; see the table in the [crate's documentation](crate#numerics).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// Allowed whatever the gradient's size.
    pub absolute: f64,
    /// Allowed as a share of the larger of the two numbers.
    pub relative: f64,
}

impl Tolerance {
    /// The table's entry for a dtype, where differences can be taken in it.
    pub fn for_dtype(dtype: DType) -> Option<Self> {
        match dtype {
            DType::F64 => Some(Self { absolute: 1e-7, relative: 1e-5 }),
            DType::F32 => Some(Self { absolute: 1e-3, relative: 1e-2 }),
            _ => None,
        }
    }
}

impl fmt::Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tolerance {:e} + {:e}·|gradient|", self.absolute, self.relative)
    }
}
