//! The fields of a `config.json` that belong to the encoder.

use crate::checkpoint::{Fields, number_fields};
use crate::encoder::Activation;
use crate::encoder::config::BertModelConfig;
use crate::encoder::disentangled::DisentangledConfig;
use crate::encoder::rotary::RotaryConfig;
use crate::error::{Error, Result, shown};
use serde_json::{Map, Value, json};
use std::path::Path;

impl BertModelConfig {
    /// Reads a Hugging Face `config.json`: the file, or the directory that holds it. Fields that are missing take the values
    /// of the family's config class in transformers. Errors are those of
    /// [`BertEmbeddingsConfig::from_pretrained`](crate::BertEmbeddingsConfig::from_pretrained), and
    /// [`Error::ConfigFile`](crate::Error::ConfigFile), naming the field, if the activation is not an [`Activation`], the
    /// model is a decoder, or [`validate`](Self::validate) refuses a value.
    pub fn from_pretrained(path: impl AsRef<Path>) -> Result<Self> {
        Self::from_fields(&Fields::at(path.as_ref())?)
    }

    /// The config in a `config.json`. Errors are those of [`from_pretrained`](Self::from_pretrained).
    pub fn from_fields(fields: &Fields) -> Result<Self> {
        let allowed = format!("one of {}", Activation::all_names());
        let hidden_act =
            fields.known("hidden_act", &allowed, Activation::from_name)?.unwrap_or(fields.spec.hidden_act);
        let hidden_act_name = fields.text("hidden_act")?.filter(|name| *name != hidden_act.names()[0]);
        // Both change what is computed, and no tensor would be missing.
        for (field, problem) in [
            ("is_decoder", "is true, but only bidirectional encoders are supported"),
            ("add_cross_attention", "is true, but cross-attention is not supported"),
        ] {
            fields.ensure(fields.flag(field)? != Some(true), field, || problem.into())?;
        }
        let default = Self::default_around(fields.embeddings()?);
        let numbers = default.numbers();
        let mut config = fields.read_numbers(default, numbers)?;
        (config.hidden_act, config.hidden_act_name) = (hidden_act, hidden_act_name.map(String::from));
        if config.encoder().has_grouped_keys && !fields.is_null("num_key_value_heads") {
            let heads = fields.size("num_key_value_heads", config.num_attention_heads)?;
            config.num_key_value_heads = (heads != config.num_attention_heads).then_some(heads);
        }
        config.rotary = config.rotary.map(|default| read_rotary(fields, default)).transpose()?;
        if config.disentangled.is_some() {
            config.disentangled = Some(read_disentangled(fields, &config)?);
        }
        fields.in_file(config.validate())?;
        // transformers takes any length of a head, and the heads here share the hidden size.
        let own = config.embeddings.hidden_size / config.num_attention_heads;
        let is_own =
            config.rotary.is_none() || fields.is_null("head_dim") || fields.size("head_dim", own)? == own;
        fields.ensure(is_own, "head_dim", || format!("must be hidden_size / num_attention_heads = {own}"))?;
        Ok(config)
    }

    pub(super) fn encoder_fields(&self) -> Vec<(&'static str, Value)> {
        let stated = self.hidden_act_name.as_deref();
        // The name counts as long as the activation was not changed.
        let stated = stated.filter(|name| Activation::from_name(name) == Some(self.hidden_act));
        let hidden_act = stated.unwrap_or(self.hidden_act.names()[0]);
        let mut fields = number_fields(self, self.numbers());
        fields.push(("hidden_act", json!(hidden_act)));
        if self.encoder().has_grouped_keys {
            let heads = self.num_key_value_heads.unwrap_or(self.num_attention_heads);
            fields.push(("num_key_value_heads", json!(heads)));
        }
        let angles = |theta: f64| json!({ "rope_theta": theta, "rope_type": "default" });
        if let Some(rotary) = self.rotary.filter(|_| !self.encoder().has_windows) {
            let (theta, factor) = (rotary.global_rope_theta, rotary.scaling_factor);
            let linear = json!({ "rope_theta": theta, "rope_type": "linear", "factor": factor });
            let angles = if factor == 1.0 { angles(theta) } else { linear };
            fields.extend([("rope_theta", json!(theta)), ("rope_parameters", angles)]);
        } else if let Some(rotary) = self.rotary {
            let every = rotary.global_attn_every_n_layers;
            let kind = |layer: usize| LAYER_KINDS[usize::from(!layer.is_multiple_of(every))];
            let angles = [rotary.global_rope_theta, rotary.local_rope_theta].map(angles);
            // The last two are the names of transformers 5, the others those of version 4.48 on.
            fields.extend([
                ("global_rope_theta", json!(rotary.global_rope_theta)),
                ("local_rope_theta", json!(rotary.local_rope_theta)),
                ("local_attention", json!(rotary.local_attention)),
                ("global_attn_every_n_layers", json!(every)),
                ("rope_parameters", LAYER_KINDS.map(String::from).into_iter().zip(angles).collect()),
                ("layer_types", (0..self.num_hidden_layers).map(kind).collect()),
            ]);
        }
        if let Some(positions) = self.disentangled {
            let kinds = [positions.p2c.then_some("p2c"), positions.c2p.then_some("c2p")];
            let kinds: Vec<&str> = kinds.into_iter().flatten().collect();
            // −1 is not a bucket, and of the other as many distances as positions.
            let buckets = positions.position_buckets.map_or(-1, |buckets| buckets as i64);
            let max = positions.max_relative_positions;
            let max = if max == self.embeddings.max_position_embeddings { -1 } else { max as i64 };
            fields.extend([
                ("relative_attention", json!(true)),
                ("position_buckets", json!(buckets)),
                ("max_relative_positions", json!(max)),
                ("share_att_key", json!(positions.share_att_key)),
                ("norm_rel_ebd", json!(if positions.norm_rel_ebd { "layer_norm" } else { "none" })),
                ("pos_att_type", json!(kinds)),
            ]);
        }
        fields
    }
}

fn read_disentangled(fields: &Fields, config: &BertModelConfig) -> Result<DisentangledConfig> {
    fields.ensure(fields.flag("relative_attention")? == Some(true), "relative_attention", || {
        "is not true, but models of this family without relative attention are not supported".into()
    })?;
    let heads = fields.size("num_attention_heads", fields.spec.num_attention_heads)?;
    // No heads are refused later, with the other sizes.
    let head_size = config.embeddings.hidden_size / heads.max(1);
    let is_own = fields.size("attention_head_size", head_size)? == head_size;
    fields.ensure(is_own, "attention_head_size", || {
        format!("is not hidden_size / num_attention_heads = {head_size}, which is not supported")
    })?;
    // transformers takes no number, and any below 1, for the default.
    let above_0 = |field| match fields.number(field, -1.0)? {
        stated if stated < 1.0 => Ok(None),
        _ => fields.size(field, 0).map(Some),
    };
    // Which of two names a field has.
    let has = |field: &'static str, known: [&str; 2]| {
        let found = fields.names(field)?;
        for other in &found {
            fields.ensure(known.contains(&other.as_str()), field, || {
                format!("has {:?}, but must have {:?} or {:?}", shown(other), known[0], known[1])
            })?;
        }
        Ok::<_, Error>(known.map(|name| found.iter().any(|found| found == name)))
    };
    let [c2p, p2c] = has("pos_att_type", ["c2p", "p2c"])?;
    let [norm_rel_ebd, _] = has("norm_rel_ebd", ["layer_norm", "none"])?;
    Ok(DisentangledConfig {
        position_buckets: above_0("position_buckets")?,
        max_relative_positions: above_0("max_relative_positions")?
            .unwrap_or(config.embeddings.max_position_embeddings),
        share_att_key: fields.flag("share_att_key")?.unwrap_or(false),
        norm_rel_ebd,
        c2p,
        p2c,
    })
}

/// transformers' names of layers that attend to all tokens, and of those with a window.
const LAYER_KINDS: [&str; 2] = ["full_attention", "sliding_attention"];

/// The rotary positions and windows of a `config.json`, under the names of transformers 5 or of version 4.
fn read_rotary(fields: &Fields, default: RotaryConfig) -> Result<RotaryConfig> {
    let given = fields.object("rope_parameters")?;
    let theta = |field: &str, angles: Option<&Map<String, Value>>, old: &'static str, default: f64| {
        let Some(angles) = angles else { return fields.number(old, default) };
        let invalid = |problem: &str| Err(fields.invalid("rope_parameters", format!("{field}{problem}")));
        if angles.get("rope_type").or(angles.get("type")).is_some_and(|kind| kind != "default") {
            return invalid("have another rope_type than \"default\", which is not supported");
        }
        match angles.get("rope_theta").map(Value::as_f64) {
            None => fields.number(old, default),
            Some(Some(theta)) => Ok(theta),
            Some(None) => invalid("have a rope_theta that is not a number"),
        }
    };
    if !fields.spec.architecture.has_windows {
        return read_scaled_rotary(fields, default.global_rope_theta);
    }
    fields.ensure(fields.is_null("rope_scaling"), "rope_scaling", || {
        "is given, but scaled rotary positions are not supported".into()
    })?;
    let theta_of_kind = |kind: &'static str, old: &'static str, default: f64| {
        let stated = given.and_then(|kinds| kinds.get(kind)).filter(|angles| !angles.is_null());
        let angles = stated.and_then(Value::as_object);
        fields.ensure(stated.is_some() == angles.is_some(), "rope_parameters", || {
            format!("have a {kind} that is not an object, such as {{\"rope_theta\": {default:?}}}")
        })?;
        theta(&format!("of {kind} "), angles, old, default)
    };
    Ok(RotaryConfig {
        global_rope_theta: theta_of_kind(LAYER_KINDS[0], "global_rope_theta", default.global_rope_theta)?,
        local_rope_theta: theta_of_kind(LAYER_KINDS[1], "local_rope_theta", default.local_rope_theta)?,
        local_attention: fields.size("local_attention", default.local_attention)?,
        global_attn_every_n_layers: global_every(fields, default.global_attn_every_n_layers)?,
        ..default
    })
}

/// The rotary positions of a family whose layers are alike, with linear scaling or the fixed NTK scaling of Alibaba's code, which
/// is linear too: by f, θ becomes θ·f and the angles are divided by f^(2/d).
fn read_scaled_rotary(fields: &Fields, default: f64) -> Result<RotaryConfig> {
    // The code that published `new` has another default than transformers.
    let is_stated = fields.text("model_type")? != Some("new") || !fields.is_null("rope_theta");
    fields.ensure(is_stated, "rope_theta", || "is missing; state it".into())?;
    let theta = fields.number("rope_theta", default)?;
    // transformers reads the older name first.
    let names = ["rope_scaling", "rope_parameters"];
    let Some(field) = names.into_iter().find(|&name| !fields.is_null(name)) else {
        return Ok(RotaryConfig::uniform(theta));
    };
    let given = fields.object(field)?.cloned().unwrap_or_default();
    let number = |name: &str, default: f64| {
        let number = given.get(name).map_or(Some(default), Value::as_f64);
        number.ok_or_else(|| fields.invalid(field, format!("have a {name} that is not a number")))
    };
    let (theta, factor) = (number("rope_theta", theta)?, number("factor", 1.0)?);
    let kind = given.get("rope_type").or(given.get("type")).unwrap_or(&Value::Null).as_str();
    let (theta, factor) = match kind.unwrap_or("default") {
        "default" => (theta, 1.0),
        "linear" => (theta, factor),
        "ntk" if given.get("mixed_b").is_none_or(Value::is_null) => {
            let heads = fields.size("num_attention_heads", fields.spec.num_attention_heads)?;
            let columns = fields.size("hidden_size", fields.spec.hidden_size)? / heads.max(1);
            (theta * factor, factor.powf(2.0 / columns as f64))
        }
        other => {
            let problem = format!("have the rope_type {:?}, which is not supported", shown(other));
            return Err(fields.invalid(field, problem));
        }
    };
    Ok(RotaryConfig::uniform(theta).with_scaling_factor(factor))
}

/// Every how many layers one attends to all tokens: as version 4 says it, or as the list of version 5 shows it.
fn global_every(fields: &Fields, default: usize) -> Result<usize> {
    let stated = fields.size("global_attn_every_n_layers", default)?;
    let Some(types) = fields.list("layer_types")? else { return Ok(stated) };
    let layers = fields.size("num_hidden_layers", fields.spec.num_hidden_layers)?;
    // Of a longer one transformers reads the first ones.
    fields.ensure(types.len() >= layers, "layer_types", || {
        format!("has {} entries, but num_hidden_layers is {layers}; state one for each layer", types.len())
    })?;
    // The second global layer shows how far apart they are; without one only the first is.
    let second = types.iter().skip(1).position(|kind| kind == LAYER_KINDS[0]);
    let shown = second.map_or(types.len().max(1), |index| index + 1);
    let irregular = |every: usize| {
        let expected = |layer: usize| LAYER_KINDS[usize::from(!layer.is_multiple_of(every))];
        types.iter().enumerate().position(|(layer, kind)| *kind != expected(layer))
    };
    // The list decides where the two differ, as in transformers. One of few layers leaves the number open.
    match (irregular(stated), irregular(shown)) {
        (None, _) => Ok(stated),
        (_, None) => Ok(shown),
        (_, Some(layer)) => {
            let problem = format!("has no global layer in every {shown}: layer {layer} is of the other kind");
            Err(fields.invalid("layer_types", problem))
        }
    }
}
