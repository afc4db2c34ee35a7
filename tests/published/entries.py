"""
The list of published checkpoints: the files of each as on the Hub, from its config.json to its modules, with the sizes
that make.py makes small. A field that a file there does not have is not here.
"""

LIST = []


def add(name, task, config, tokenizer, settings=None, **more):
    files = dict(more.pop("files", {}))
    if settings is not None:
        files[more.get("below", "") + "tokenizer_config.json"] = settings
    LIST.append({"name": name, "task": task, "config": config, "tokenizer": tokenizer, "files": files, **more})


def labels(*names):
    return {"id2label": {str(i): name for i, name in enumerate(names)}, "label2id": {name: i for i, name in enumerate(names)}}


def config_of(model_type, architecture, base, over):
    """Without the fields that a file leaves out: those that `over` says are `...`."""
    fields = {"architectures": [architecture] if architecture else None, "model_type": model_type, **base, **over}
    return {name: value for name, value in fields.items() if value is not ...}


BERT = {
    "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 768,
    "initializer_range": 0.02, "intermediate_size": 3072, "layer_norm_eps": 1e-12, "max_position_embeddings": 512,
    "num_attention_heads": 12, "num_hidden_layers": 12, "pad_token_id": 0, "type_vocab_size": 2, "vocab_size": 30522,
}  # fmt: skip
# As later versions of transformers write it.
LATER = {"classifier_dropout": None, "gradient_checkpointing": False, "position_embedding_type": "absolute",
         "transformers_version": "4.36.2", "use_cache": True}  # fmt: skip
ROBERTA = {**BERT, "bos_token_id": 0, "eos_token_id": 2, "layer_norm_eps": 1e-5, "max_position_embeddings": 514,
           "pad_token_id": 1, "type_vocab_size": 1, "vocab_size": 50265}  # fmt: skip
DISTIL = {
    "activation": "gelu", "attention_dropout": 0.1, "dim": 768, "dropout": 0.1, "hidden_dim": 3072, "initializer_range": 0.02,
    "max_position_embeddings": 512, "n_heads": 12, "n_layers": 6, "pad_token_id": 0, "qa_dropout": 0.1,
    "seq_classif_dropout": 0.2, "sinusoidal_pos_embds": False, "tie_weights_": True, "vocab_size": 30522,
}  # fmt: skip
ALBERT = {
    "attention_probs_dropout_prob": 0, "bos_token_id": 2, "classifier_dropout_prob": 0.1, "down_scale_factor": 1,
    "embedding_size": 128, "eos_token_id": 3, "gap_size": 0, "hidden_act": "gelu_new", "hidden_dropout_prob": 0,
    "hidden_size": 768, "initializer_range": 0.02, "inner_group_num": 1, "intermediate_size": 3072, "layer_norm_eps": 1e-12,
    "max_position_embeddings": 512, "net_structure_type": 0, "num_attention_heads": 12, "num_hidden_groups": 1,
    "num_hidden_layers": 12, "num_memory_blocks": 0, "pad_token_id": 0, "type_vocab_size": 2, "vocab_size": 30000,
}  # fmt: skip
MPNET = {**{k: v for k, v in BERT.items() if k != "type_vocab_size"}, "bos_token_id": 0, "eos_token_id": 2, "layer_norm_eps": 1e-5,
         "max_position_embeddings": 514, "pad_token_id": 1, "relative_attention_num_buckets": 32, "vocab_size": 30527}  # fmt: skip
DEBERTA = {
    "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 768,
    "initializer_range": 0.02, "intermediate_size": 3072, "layer_norm_eps": 1e-7, "max_position_embeddings": 512,
    "max_relative_positions": -1, "norm_rel_ebd": "layer_norm", "num_attention_heads": 12, "num_hidden_layers": 6,
    "pos_att_type": "p2c|c2p", "position_biased_input": False, "position_buckets": 256, "relative_attention": True,
    "share_att_key": True, "type_vocab_size": 0, "vocab_size": 128100,
}  # fmt: skip
ELECTRA = {**BERT, "embedding_size": 128, "hidden_size": 256, "intermediate_size": 1024, "num_attention_heads": 4,
           "summary_activation": "gelu", "summary_last_dropout": 0.1, "summary_type": "first", "summary_use_proj": True}  # fmt: skip
MODERN = {
    "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": 50281, "classifier_activation": "gelu",
    "classifier_bias": False, "classifier_dropout": 0.0, "classifier_pooling": "mean", "cls_token_id": 50281,
    "decoder_bias": True, "deterministic_flash_attn": False, "embedding_dropout": 0.0, "eos_token_id": 50282,
    "global_attn_every_n_layers": 3, "global_rope_theta": 160000.0, "gradient_checkpointing": False,
    "hidden_activation": "gelu", "hidden_size": 768, "initializer_cutoff_factor": 2.0, "initializer_range": 0.02,
    "intermediate_size": 1152, "layer_norm_eps": 1e-5, "local_attention": 128, "local_rope_theta": 10000.0,
    "max_position_embeddings": 8192, "mlp_bias": False, "mlp_dropout": 0.0, "norm_bias": False, "norm_eps": 1e-5,
    "num_attention_heads": 12, "num_hidden_layers": 22, "pad_token_id": 50283, "position_embedding_type": "absolute",
    "reference_compile": True, "repad_logits_with_grad": False, "sep_token_id": 50282, "sparse_pred_ignore_index": -100,
    "sparse_prediction": False, "torch_dtype": "float32", "transformers_version": "4.47.0.dev0", "vocab_size": 50368,
}  # fmt: skip
EURO = {
    "attention_bias": False, "attention_dropout": 0.0,
    "auto_map": {"AutoConfig": "configuration_eurobert.EuroBertConfig", "AutoModel": "modeling_eurobert.EuroBertModel",
                 "AutoModelForMaskedLM": "modeling_eurobert.EuroBertForMaskedLM",
                 "AutoModelForQuestionAnswering": "modeling_eurobert.EuroBertForQuestionAnswering",
                 "AutoModelForSequenceClassification": "modeling_eurobert.EuroBertForSequenceClassification",
                 "AutoModelForTokenClassification": "modeling_eurobert.EuroBertForTokenClassification"},
    "bos_token": "<|begin_of_text|>", "bos_token_id": 128000, "eos_token": "<|end_of_text|>", "eos_token_id": 128001,
    "hidden_act": "silu", "hidden_dropout": 0.0, "hidden_size": 768, "initializer_range": 0.02, "intermediate_size": 3072,
    "mask_token": "<|mask|>", "mask_token_id": 128002, "max_position_embeddings": 8192, "mlp_bias": False,
    "num_attention_heads": 12, "num_hidden_layers": 12, "num_key_value_heads": 12, "pad_token": "<|end_of_text|>",
    "pad_token_id": 128001, "pretraining_tp": 1, "rms_norm_eps": 1e-5, "rope_scaling": None, "rope_theta": 250000,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16", "transformers_version": "4.40.0.dev0", "use_cache": False,
    "vocab_size": 128256,
}  # fmt: skip
NOMIC = {
    "activation_function": "swiglu", "attn_pdrop": 0.0,
    "auto_map": {"AutoConfig": "nomic-ai/nomic-bert-2048--configuration_hf_nomic_bert.NomicBertConfig",
                 "AutoModel": "nomic-ai/nomic-bert-2048--modeling_hf_nomic_bert.NomicBertModel",
                 "AutoModelForMaskedLM": "nomic-ai/nomic-bert-2048--modeling_hf_nomic_bert.NomicBertForPreTraining"},
    "bos_token_id": None, "causal": False, "dense_seq_output": True, "embd_pdrop": 0.0, "eos_token_id": None,
    "fused_bias_fc": True, "fused_dropout_add_ln": True, "initializer_range": 0.02, "layer_norm_epsilon": 1e-12,
    "max_trained_positions": 2048, "mlp_fc1_bias": False, "mlp_fc2_bias": False, "n_embd": 768, "n_head": 12, "n_inner": 3072,
    "n_layer": 12, "n_positions": 8192, "pad_vocab_size_multiple": 64, "parallel_block": False,
    "parallel_block_tied_norm": False, "prenorm": False, "qkv_proj_bias": False, "reorder_and_upcast_attn": False,
    "resid_pdrop": 0.0, "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0, "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None, "rotary_scaling_factor": None, "scale_attn_by_inverse_layer_idx": False,
    "scale_attn_weights": True, "summary_activation": None, "summary_first_dropout": 0.0, "summary_proj_to_labels": True,
    "summary_type": "cls_index", "summary_use_proj": True, "torch_dtype": "float32", "transformers_version": "4.37.2",
    "type_vocab_size": 2, "use_cache": True, "use_flash_attn": True, "use_rms_norm": False, "use_xentropy": True,
    "vocab_size": 30528,
}  # fmt: skip
NEW = {
    "attention_probs_dropout_prob": 0.0,
    "auto_map": {"AutoConfig": "Alibaba-NLP/new-impl--configuration.NewConfig", "AutoModel": "Alibaba-NLP/new-impl--modeling.NewModel"},
    "classifier_dropout": 0.0, "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 768, "initializer_range": 0.02,
    "intermediate_size": 3072, "layer_norm_eps": 1e-12, "layer_norm_type": "layer_norm", "logn_attention_clip1": False,
    "logn_attention_scale": False, "max_position_embeddings": 8192, "num_attention_heads": 12, "num_hidden_layers": 12,
    "pack_qkv": True, "pad_token_id": 0, "position_embedding_type": "rope", "rope_scaling": {"factor": 2.0, "type": "ntk"},
    "rope_theta": 500000, "torch_dtype": "float32", "transformers_version": "4.41.2", "type_vocab_size": 0,
    "unpad_inputs": False, "use_memory_efficient_attention": False, "vocab_size": 30528,
}  # fmt: skip
ERNIE = {**BERT, "layer_norm_eps": 1e-12, "task_type_vocab_size": 3, "use_task_id": True, "use_cache": True}


def family(model_type, architecture, base):
    """Configs of a family: the architecture, fields that many have, and a checkpoint's own."""

    def config(*parts, **over):
        names = [part for part in parts if not isinstance(part, dict)] or [architecture]
        merged = {}
        for part in [*(part for part in parts if isinstance(part, dict)), over]:
            merged |= part
        return config_of(model_type, names[0], base, merged)

    return config


bert = family("bert", "BertModel", BERT)
distilbert = family("distilbert", "DistilBertModel", DISTIL)
deberta = family("deberta-v2", None, DEBERTA)
roberta = family("roberta", "RobertaModel", ROBERTA)
camembert = family("camembert", "CamembertModel", ROBERTA)
xlm_roberta = family("xlm-roberta", "XLMRobertaModel", {**ROBERTA, **LATER, "output_past": True, "vocab_size": 250002})


def without(prefix):
    """A model whose publisher saved it below its head."""
    return lambda key: key.removeprefix(prefix)


def gamma(key):
    return key.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")


BUFFER = [("embeddings.position_ids", [1, "P"], "i64")]
# The other half of BertForPreTraining.
NSP = [("cls.seq_relationship.weight", [2, "H"], "f32"), ("cls.seq_relationship.bias", [2], "f32")]
TIED = [("cls.predictions.decoder.weight", ["V", "H"], "=bert.embeddings.word_embeddings.weight")]
POOLER = [("bert.pooler.dense.weight", ["H", "H"], "f32"), ("bert.pooler.dense.bias", ["H"], "f32")]


def pooling(mode="mean_tokens", folder="1_Pooling", **more):
    modes = ["cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens"]
    if "later" in more:
        modes += ["weightedmean_tokens", "lasttoken"]
        more = {"include_prompt": True}
    config = {"word_embedding_dimension": 16, **{f"pooling_mode_{name}": name in mode.split("+") for name in modes}, **more}
    return {f"{folder}/config.json": config}


def modules(*parts, prefix="sentence_transformers.models."):
    return {"modules.json": [{"idx": i, "name": str(i), "path": path, "type": prefix + kind} for i, (path, kind) in enumerate(parts)]}


def sentence(pool="mean_tokens", normalize=True, length=256, lower=False, own=None, later=False):
    parts = [("", "Transformer"), ("1_Pooling", "Pooling")] + [("2_Normalize", "Normalize")] * normalize
    own = {"__version__": {"sentence_transformers": "2.0.0", "transformers": "4.6.1", "pytorch": "1.8.1"}, **(own or {})}
    return {
        **modules(*parts), **pooling(pool, **({"later": True} if later else {})),
        "sentence_bert_config.json": {"max_seq_length": length, "do_lower_case": lower},
        "config_sentence_transformers.json": own,
    }  # fmt: skip


SPECIAL = {"cls_token": "[CLS]", "mask_token": "[MASK]", "pad_token": "[PAD]", "sep_token": "[SEP]", "unk_token": "[UNK]"}


def bert_settings(lower=True, **more):
    return {"do_lower_case": lower, **SPECIAL, "strip_accents": None, "tokenize_chinese_chars": True,
            "tokenizer_class": "BertTokenizer", "model_max_length": 512, **more}  # fmt: skip


MASK = {"__type": "AddedToken", "content": "<mask>", "lstrip": True, "normalized": False, "rstrip": False, "single_word": False}
ROBERTA_SPECIAL = {"bos_token": "<s>", "cls_token": "<s>", "eos_token": "</s>", "mask_token": MASK, "pad_token": "<pad>",
                   "sep_token": "</s>", "unk_token": "<unk>"}  # fmt: skip


def roberta_settings(name="RobertaTokenizer", **more):
    return {**ROBERTA_SPECIAL, "tokenizer_class": name, "model_max_length": 512, **more}


def roberta_map():
    return {"special_tokens_map.json": {**ROBERTA_SPECIAL, "mask_token": {k: v for k, v in MASK.items() if k != "__type"}}}


MINILM = {**LATER, "hidden_size": 384, "intermediate_size": 1536, "num_hidden_layers": 6, "transformers_version": "4.8.2"}
BERT_JSON, BERT_VOCAB = "bert tokenizer.json vocab.txt", "bert vocab.txt"
ROBERTA_JSON, ROBERTA_BPE = "roberta tokenizer.json vocab.json merges.txt", "roberta vocab.json merges.txt"
XLMR_JSON, XLMR_SPM = "xlm_roberta tokenizer.json sentencepiece.bpe.model", "xlm_roberta sentencepiece.bpe.model"
MULTILINGUAL = {"vocab_size": 119547, "directionality": "bidi", "pooler_fc_size": 768, "pooler_num_attention_heads": 12,
                "pooler_num_fc_layers": 3, "pooler_size_per_head": 128, "pooler_type": "first_token_transform"}  # fmt: skip

# BERT: masked words.
add("google-bert/bert-base-uncased", "masked", bert("BertForMaskedLM", LATER, transformers_version="4.6.0.dev0", classifier_dropout=...),
    BERT_JSON, {"do_lower_case": True, "model_max_length": 512}, rename=gamma, more=NSP + POOLER)
add("google-bert/bert-base-cased", "masked", bert("BertForMaskedLM", LATER, vocab_size=28996, classifier_dropout=...),
    BERT_JSON, {"do_lower_case": False, "model_max_length": 512}, rename=gamma, more=NSP + POOLER)
add("google-bert/bert-base-multilingual-cased", "masked", bert("BertForMaskedLM", LATER, MULTILINGUAL, classifier_dropout=...),
    BERT_JSON, {"do_lower_case": False, "model_max_length": 512}, more=NSP + POOLER)
add("google-bert/bert-base-chinese", "masked", bert("BertForMaskedLM", **{**MULTILINGUAL, "vocab_size": 21128}),
    BERT_JSON, {"do_lower_case": False, "model_max_length": 512}, rename=gamma, more=NSP + POOLER)
add("google-bert/bert-large-uncased-whole-word-masking-finetuned-squad", "answers", bert("BertForQuestionAnswering", hidden_size=1024,
    intermediate_size=4096, num_attention_heads=16, num_hidden_layers=24), BERT_JSON, {"do_lower_case": True, "model_max_length": 512},
    more=[("bert.embeddings.position_ids", [1, "P"], "i64")])
add("emilyalsentzer/Bio_ClinicalBERT", "masked", bert(None, vocab_size=28996, architectures=...), BERT_VOCAB, weights="pytorch_model.bin",
    **{"class": "BertForPreTraining"}, more=[("bert.embeddings.position_ids", [1, "P"], "i64"), *TIED])
add("dmis-lab/biobert-v1.1", "base", bert(None, vocab_size=28996, architectures=...), BERT_VOCAB, weights="pytorch_model.bin",
    **{"class": "BertModel"}, rename=lambda key: "bert." + key)
add("allenai/scibert_scivocab_uncased", "masked", {"attention_probs_dropout_prob": 0.1, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
    "hidden_size": 768, "initializer_range": 0.02, "intermediate_size": 3072, "max_position_embeddings": 512, "model_type": "bert",
    "num_attention_heads": 12, "num_hidden_layers": 12, "type_vocab_size": 2, "vocab_size": 31090}, BERT_VOCAB,
    **{"class": "BertForPreTraining"}, rename=gamma)
add("microsoft/BiomedNLP-BiomedBERT-base-uncased-abstract", "masked", bert("BertForMaskedLM", gradient_checkpointing=False), BERT_VOCAB,
    {"do_lower_case": True, "model_max_length": 512}, more=TIED)
add("dbmdz/bert-base-german-cased", "masked", bert("BertForMaskedLM", vocab_size=31102), BERT_VOCAB, {"do_lower_case": False, "model_max_length": 512},
    more=POOLER)
add("deepset/gbert-base", "masked", bert("BertForMaskedLM", vocab_size=31102), BERT_VOCAB, {"do_lower_case": False, "strip_accents": False}, more=TIED)
add("dccuchile/bert-base-spanish-wwm-cased", "masked", bert("BertForMaskedLM", output_past=True, vocab_size=31002), BERT_JSON,
    {"do_lower_case": False, "strip_accents": False}, rename=gamma)
add("neuralmind/bert-base-portuguese-cased", "masked", bert("BertForMaskedLM", **{**MULTILINGUAL, "vocab_size": 29794}, output_past=True),
    BERT_VOCAB, {"do_lower_case": False, "model_max_length": 512}, more=NSP + POOLER)
add("aubmindlab/bert-base-arabertv02", "masked", bert("BertForMaskedLM", vocab_size=64000, gradient_checkpointing=False, use_cache=True), BERT_JSON,
    bert_settings(False, never_split=["[بريد]", "[مستخدم]", "[رابط]"], max_len=512, model_max_length=512))
add("TurkuNLP/bert-base-finnish-cased-v1", "masked", bert("BertForPreTraining", vocab_size=50105), BERT_VOCAB, {"do_lower_case": False})
add("DeepPavlov/rubert-base-cased", "masked", bert("BertForMaskedLM", MULTILINGUAL, output_past=True), BERT_VOCAB,
    {"do_lower_case": False}, more=NSP + POOLER)
add("hfl/chinese-roberta-wwm-ext", "masked", bert("BertForMaskedLM", bos_token_id=0, eos_token_id=2, directionality="bidi", output_past=True,
    vocab_size=21128), BERT_JSON, {"init_inputs": []}, files={"added_tokens.json": {}, "special_tokens_map.json": SPECIAL}, more=NSP + POOLER + TIED)
add("hfl/chinese-macbert-base", "masked", bert("BertForMaskedLM", gradient_checkpointing=False, vocab_size=21128), BERT_JSON,
    {"do_lower_case": True, "init_inputs": []}, files={"added_tokens.json": {}, "special_tokens_map.json": SPECIAL})
add("google/bert_uncased_L-2_H-128_A-2", "masked", bert("BertForPreTraining", hidden_size=128, intermediate_size=512, num_attention_heads=2,
    num_hidden_layers=2), BERT_VOCAB)
add("prajjwal1/bert-tiny", "base", {"hidden_size": 128, "hidden_act": "gelu", "initializer_range": 0.02, "vocab_size": 30522,
    "hidden_dropout_prob": 0.1, "num_attention_heads": 2, "type_vocab_size": 2, "max_position_embeddings": 512, "num_hidden_layers": 2,
    "intermediate_size": 512, "attention_probs_dropout_prob": 0.1}, BERT_VOCAB, refused='add "model_type": "bert"')
# BERT: classifiers.
add("ProsusAI/finbert", "sequence", bert("BertForSequenceClassification", **labels("positive", "negative", "neutral"), gradient_checkpointing=False),
    BERT_VOCAB, {"do_lower_case": True, "model_max_length": 512})
add("yiyanghkust/finbert-tone", "sequence", bert("BertForSequenceClassification", **labels("Neutral", "Positive", "Negative"), vocab_size=30873),
    BERT_VOCAB, weights="pytorch_model.bin", more=[("bert.embeddings.position_ids", [1, "P"], "i64")])
add("nlptown/bert-base-multilingual-uncased-sentiment", "sequence", bert("BertForSequenceClassification", **MULTILINGUAL | {"vocab_size": 105879},
    _num_labels=5, finetuning_task="sentiment-analysis", output_past=True, **labels("1 star", "2 stars", "3 stars", "4 stars", "5 stars")), BERT_VOCAB,
    {"do_lower_case": True}, files={"special_tokens_map.json": SPECIAL})
add("unitary/toxic-bert", "sequence", bert("BertForSequenceClassification", LATER, problem_type="multi_label_classification",
    **labels("toxic", "severe_toxic", "obscene", "threat", "insult", "identity_hate")), BERT_VOCAB, bert_settings())
add("textattack/bert-base-uncased-SST-2", "sequence", bert("BertForSequenceClassification", finetuning_task="glue:sst-2"), BERT_VOCAB, {},
    files={"special_tokens_map.json": SPECIAL})
add("dslim/bert-base-NER", "tokens", bert("BertForTokenClassification", _num_labels=9, output_past=True, vocab_size=28996,
    **labels("O", "B-MISC", "I-MISC", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC")), BERT_VOCAB,
    {"do_lower_case": False, "max_len": 512}, files={"added_tokens.json": {}, "special_tokens_map.json": SPECIAL}, more=POOLER)
add("dbmdz/bert-large-cased-finetuned-conll03-english", "tokens", bert("BertForTokenClassification", _num_labels=9, directionality="bidi",
    vocab_size=28996, **labels("O", "B-MISC", "I-MISC", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC")), BERT_JSON,
    {"do_lower_case": False, "model_max_length": 512}, more=POOLER)
add("ckiplab/bert-base-chinese-ws", "tokens", bert("BertForTokenClassification", **MULTILINGUAL | {"vocab_size": 21128},
    **labels("B", "I"), tokenizer_class="BertTokenizerFast"), BERT_VOCAB, bert_settings(False, init_inputs=[]), files={"special_tokens_map.json": SPECIAL})
# BERT: sentences and reranking.
add("sentence-transformers/all-MiniLM-L6-v2", "sentence", bert(MINILM, _name_or_path="nreimers/MiniLM-L6-H384-uncased"), BERT_JSON,
    bert_settings(name_or_path="nreimers/MiniLM-L6-H384-uncased"), files=sentence(), more=BUFFER)
add("sentence-transformers/all-MiniLM-L12-v2", "sentence", bert(**{**MINILM, "num_hidden_layers": 12}), BERT_JSON, bert_settings(),
    files=sentence(length=128), more=BUFFER)
add("sentence-transformers/multi-qa-MiniLM-L6-cos-v1", "sentence", bert(MINILM), BERT_JSON, bert_settings(), files=sentence(length=512), more=BUFFER)
add("sentence-transformers/paraphrase-MiniLM-L6-v2", "sentence", bert(MINILM), BERT_JSON, bert_settings(), files=sentence(normalize=False, length=128),
    more=BUFFER)
add("sentence-transformers/paraphrase-multilingual-MiniLM-L12-v2", "sentence", bert(**{**MINILM, "vocab_size": 250037}), XLMR_JSON,
    {**ROBERTA_SPECIAL, "mask_token": "<mask>", "do_lower_case": True, "tokenize_chinese_chars": True, "strip_accents": None,
     "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 512}, files=sentence(normalize=False, length=128), more=BUFFER)
add("sentence-transformers/LaBSE", "sentence", bert(LATER, **{**MULTILINGUAL, "vocab_size": 501153}), BERT_JSON, bert_settings(False),
    files={**modules(("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Dense", "Dense"), ("3_Normalize", "Normalize")), **pooling("cls_token"),
           "2_Dense/config.json": {"in_features": 16, "out_features": 16, "bias": True, "activation_function": "torch.nn.modules.activation.Tanh"},
           "sentence_bert_config.json": {"max_seq_length": 256, "do_lower_case": False}},
    folders={"2_Dense/pytorch_model.bin": {"linear.weight": [16, 16], "linear.bias": [16]}}, more=BUFFER)
add("sentence-transformers/bert-base-nli-mean-tokens", "sentence", bert(gradient_checkpointing=False), BERT_JSON, bert_settings(),
    files={**modules(("", "Transformer"), ("1_Pooling", "Pooling")), **pooling(), "sentence_bert_config.json": {"max_seq_length": 128, "do_lower_case": False}})
add("sentence-transformers/bert-base-nli-mean-tokens@v0", "sentence", bert(architectures=["BertModel"]), BERT_VOCAB, {"do_lower_case": True},
    below="0_Transformer/", weights="pytorch_model.bin", note="as sentence-transformers 0.x and 1.x saved it: the model in 0_Transformer",
    files={**modules(("0_Transformer", "Transformer"), ("1_Pooling", "Pooling")), **pooling(),
           "0_Transformer/sentence_bert_config.json": {"max_seq_length": 128, "do_lower_case": False}, "config.json": {"__version__": "0.3.6"},
           "0_Transformer/special_tokens_map.json": SPECIAL, "0_Transformer/added_tokens.json": {}})
add("sentence-transformers/msmarco-bert-base-dot-v5", "sentence", bert(LATER), BERT_JSON, bert_settings(), files=sentence(normalize=False, length=512))
add("sentence-transformers/msmarco-MiniLM-L6-cos-v5", "sentence", bert(MINILM), BERT_JSON, bert_settings(), files=sentence(length=512))
add("BAAI/bge-small-en-v1.5", "sentence", bert(**{**MINILM, "num_hidden_layers": 12}, **labels("LABEL_0")), BERT_JSON,
    bert_settings(do_basic_tokenize=True, never_split=None, clean_up_tokenization_spaces=True), files=sentence("cls_token", lower=True, length=512), more=BUFFER)
add("BAAI/bge-base-zh-v1.5", "sentence", bert(LATER, bos_token_id=0, eos_token_id=2, directionality="bidi", output_past=True, vocab_size=21128,
    **labels("LABEL_0")), BERT_JSON, bert_settings(do_basic_tokenize=True, never_split=None, clean_up_tokenization_spaces=True),
    files=sentence("cls_token", length=512))
add("intfloat/e5-base-v2", "sentence", bert(LATER), BERT_JSON, bert_settings(clean_up_tokenization_spaces=True),
    files={**modules(("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")), **pooling(), "sentence_bert_config.json": {"max_seq_length": 512, "do_lower_case": False}})
add("intfloat/multilingual-e5-small", "sentence", bert(**{**MINILM, "vocab_size": 250037}, tokenizer_class="XLMRobertaTokenizer"), XLMR_JSON,
    roberta_settings("XLMRobertaTokenizer", clean_up_tokenization_spaces=True, sp_model_kwargs={}), files={**sentence(length=512), **roberta_map()})
add("thenlper/gte-small", "sentence", bert(**{**MINILM, "num_hidden_layers": 12}), BERT_JSON, bert_settings(), files=sentence(length=512), dtype="f16")
add("mixedbread-ai/mxbai-embed-large-v1", "sentence", bert(LATER, hidden_size=1024, torch_dtype="float16"), BERT_JSON,
    bert_settings(added_tokens_decoder={"0": {"content": "[PAD]", "lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}}),
    files=sentence("cls_token", normalize=False, length=512, later=True, own={"prompts": {"query": "Represent this sentence for searching relevant passages: ", "passage": ""},
    "default_prompt_name": None}), dtype="f16")
add("Snowflake/snowflake-arctic-embed-m", "sentence", bert(LATER, add_pooling_layer=False), BERT_JSON, bert_settings(),
    files=sentence("cls_token", length=512, later=True, own={"prompts": {"query": "Represent this sentence for searching relevant passages: "}, "default_prompt_name": None}),
    rename=lambda key: None if key.startswith("pooler") else key)
add("avsolatorio/GIST-small-Embedding-v0", "sentence", bert(**{**MINILM, "num_hidden_layers": 12}), BERT_JSON, bert_settings(), files=sentence("cls_token", length=512))
add("cointegrated/rubert-tiny2", "sentence", bert("BertForPreTraining", LATER, emb_size=312, hidden_size=312, max_position_embeddings=2048, num_hidden_layers=3,
    vocab_size=83828), BERT_JSON, bert_settings(False), more=BUFFER[:0],
    files={**modules(("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")), **pooling("cls_token"), "sentence_bert_config.json": {"max_seq_length": 2048, "do_lower_case": False}})
add("shibing624/text2vec-base-chinese", "sentence", bert(LATER, bos_token_id=0, eos_token_id=2, vocab_size=21128), BERT_JSON, bert_settings(),
    files={**modules(("", "Transformer"), ("1_Pooling", "Pooling")), **pooling(), "sentence_bert_config.json": {"max_seq_length": 256, "do_lower_case": False}})
add("moka-ai/m3e-base", "sentence", bert(LATER, vocab_size=21128), BERT_JSON, bert_settings(), files=sentence(normalize=False, length=512))
add("facebook/contriever", "sentence", bert("Contriever", pooling="average", use_cache=True), BERT_JSON, bert_settings(), **{"class": "BertModel"})
add("cross-encoder/ms-marco-MiniLM-L-6-v2", "rank", bert("BertForSequenceClassification", MINILM, **labels("LABEL_0"),
    sentence_transformers={"activation_fn": "torch.nn.modules.linear.Identity", "version": "4.0.1"}), BERT_JSON, bert_settings())
add("cross-encoder/ms-marco-TinyBERT-L-2-v2", "rank", bert("BertForSequenceClassification", MINILM, **labels("LABEL_0"), sbert_ce_default_activation_function="torch.nn.modules.linear.Identity"),
    BERT_VOCAB, bert_settings(), files={"special_tokens_map.json": SPECIAL}, weights="pytorch_model.bin")
add("mixedbread-ai/mxbai-colbert-large-v1", "base", bert(LATER), BERT_JSON, bert_settings(), note="the model alone: the layer of ColBERT is not computed",
    more=[("linear.weight", [8, "H"], "f32")], rename=lambda key: "bert." + key)
# Japanese and Korean.
MECAB = {"do_lower_case": False, "word_tokenizer_type": "mecab", "subword_tokenizer_type": "wordpiece", "tokenizer_class": "BertJapaneseTokenizer",
         "mecab_kwargs": {"mecab_dic": "unidic_lite"}, "model_max_length": 512}
add("tohoku-nlp/bert-base-japanese-v3", "masked", bert("BertForPreTraining", vocab_size=32768), BERT_VOCAB, MECAB, refused="BertJapaneseTokenizer")
add("tohoku-nlp/bert-base-japanese-char-v3", "masked", bert("BertForPreTraining", vocab_size=7027), BERT_VOCAB,
    {**MECAB, "subword_tokenizer_type": "character"}, refused="BertJapaneseTokenizer")
add("tohoku-nlp/bert-base-japanese", "masked", bert("BertForMaskedLM", tokenizer_class="BertJapaneseTokenizer", vocab_size=32000), BERT_VOCAB,
    {"do_lower_case": False, "subword_tokenizer_type": "wordpiece", "word_tokenizer_type": "mecab"}, refused="BertJapaneseTokenizer")
add("sonoisa/sentence-bert-base-ja-mean-tokens-v2", "sentence", bert(LATER, tokenizer_class="BertJapaneseTokenizer", vocab_size=32000), BERT_VOCAB, MECAB,
    files=sentence(normalize=False, length=512), refused="BertJapaneseTokenizer")
add("monologg/kobert", "base", bert(vocab_size=8002), BERT_VOCAB, {"auto_map": {"AutoTokenizer": ["tokenization_kobert.KoBERTTokenizer", None]},
    "tokenizer_class": "KoBertTokenizer", "do_lower_case": False}, refused="auto_map")
add("klue/bert-base", "masked", bert("BertForMaskedLM", vocab_size=32000), BERT_JSON, bert_settings(False))
add("klue/roberta-base", "masked", roberta("RobertaForMaskedLM", gradient_checkpointing=False, tokenizer_class="BertTokenizer", vocab_size=32000),
    "klue tokenizer.json vocab.txt", bert_settings(False, bos_token="[CLS]", eos_token="[SEP]"), files={"special_tokens_map.json": {**SPECIAL, "bos_token": "[CLS]", "eos_token": "[SEP]"}})
# RoBERTa's.
add("FacebookAI/roberta-base", "masked", roberta("RobertaForMaskedLM"), ROBERTA_JSON, {"model_max_length": 512},
    more=[("roberta.embeddings.position_ids", [1, "P"], "i64"), ("roberta.pooler.dense.weight", ["H", "H"], "f32"), ("roberta.pooler.dense.bias", ["H"], "f32"),
          ("lm_head.decoder.weight", ["V", "H"], "=roberta.embeddings.word_embeddings.weight")])
add("FacebookAI/roberta-large-mnli", "sequence", roberta("RobertaForSequenceClassification", _num_labels=3, **labels("CONTRADICTION", "NEUTRAL", "ENTAILMENT")), ROBERTA_JSON, {},
    more=[("roberta.pooler.dense.weight", ["H", "H"], "f32"), ("roberta.pooler.dense.bias", ["H"], "f32")])
add("distilbert/distilroberta-base", "masked", roberta("RobertaForMaskedLM", num_hidden_layers=6), ROBERTA_JSON, {"model_max_length": 512})
add("deepset/roberta-base-squad2", "answers", roberta("RobertaForQuestionAnswering", gradient_checkpointing=False, language="english", name="Roberta"),
    ROBERTA_BPE, roberta_settings(add_prefix_space=False, trim_offsets=True, do_lower_case=False, full_tokenizer_file=None), files={"special_tokens_map.json":
    {**ROBERTA_SPECIAL, "mask_token": "<mask>"}}, more=[("roberta.embeddings.position_ids", [1, "P"], "i64")])
add("cardiffnlp/twitter-roberta-base-sentiment-latest", "sequence", roberta("RobertaForSequenceClassification", gradient_checkpointing=False,
    **labels("negative", "neutral", "positive")), ROBERTA_BPE, None, files=roberta_map(), weights="pytorch_model.bin")
add("SamLowe/roberta-base-go_emotions", "sequence", roberta("RobertaForSequenceClassification", LATER, problem_type="multi_label_classification",
    **labels("admiration", "amusement", "anger", "annoyance")), ROBERTA_JSON, roberta_settings(add_prefix_space=False))
add("j-hartmann/emotion-english-distilroberta-base", "sequence", roberta("RobertaForSequenceClassification", num_hidden_layers=6,
    **labels("anger", "disgust", "fear", "joy", "neutral", "sadness", "surprise")), ROBERTA_JSON, roberta_settings(add_prefix_space=False))
add("microsoft/codebert-base", "base", roberta("RobertaModel", output_past=True), ROBERTA_BPE, {"model_max_length": 512},
    files=roberta_map(), rename=lambda key: key)
add("cross-encoder/stsb-roberta-base", "rank", roberta("RobertaForSequenceClassification", **labels("LABEL_0"), sbert_ce_default_activation_function="torch.nn.modules.activation.Sigmoid"),
    ROBERTA_JSON, roberta_settings())
add("sentence-transformers/all-distilroberta-v1", "sentence", roberta("RobertaForMaskedLM", LATER, num_hidden_layers=6), ROBERTA_JSON, roberta_settings(), files=sentence(length=512),
    rename=without("roberta."))
add("sentence-transformers/stsb-roberta-base-v2", "sentence", roberta("RobertaModel"), ROBERTA_JSON, roberta_settings(),
    files={**modules(("", "Transformer"), ("1_Pooling", "Pooling")), **pooling(), "sentence_roberta_config.json": {"max_seq_length": 75, "do_lower_case": False}})
add("FacebookAI/xlm-roberta-base", "masked", xlm_roberta("XLMRobertaForMaskedLM"), XLMR_JSON, {"model_max_length": 512},
    more=[("roberta.embeddings.position_ids", [1, "P"], "i64"), ("lm_head.decoder.weight", ["V", "H"], "=roberta.embeddings.word_embeddings.weight"),
          ("lm_head.decoder.bias", ["V"], "=lm_head.bias")])
add("cardiffnlp/twitter-xlm-roberta-base-sentiment", "sequence", xlm_roberta("XLMRobertaForSequenceClassification", **labels("negative", "neutral", "positive")), XLMR_SPM, None, files=roberta_map())
add("papluca/xlm-roberta-base-language-detection", "sequence", xlm_roberta("XLMRobertaForSequenceClassification", problem_type="single_label_classification",
    **labels("ja", "nl", "ar", "pl")), XLMR_JSON, roberta_settings("XLMRobertaTokenizer"))
add("Davlan/xlm-roberta-base-ner-hrl", "tokens", xlm_roberta("XLMRobertaForTokenClassification", **labels("O", "B-DATE", "I-DATE", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC")), XLMR_SPM,
    roberta_settings("XLMRobertaTokenizer"), files=roberta_map())
add("deepset/xlm-roberta-large-squad2", "answers", xlm_roberta("XLMRobertaForQuestionAnswering", language="english", name="XLMRoberta"), XLMR_SPM, {"do_lower_case": False, "model_max_length": 512},
    files=roberta_map())
add("BAAI/bge-m3", "sentence", xlm_roberta(max_position_embeddings=8194), XLMR_JSON, roberta_settings("XLMRobertaTokenizer", sp_model_kwargs={}, model_max_length=8192),
    files={**sentence("cls_token", length=8192), **roberta_map()}, weights="pytorch_model.bin")
add("BAAI/bge-reranker-base", "rank", xlm_roberta("XLMRobertaForSequenceClassification", **labels("LABEL_0")), XLMR_JSON, roberta_settings("XLMRobertaTokenizer"), files=roberta_map())
add("BAAI/bge-reranker-v2-m3", "rank", xlm_roberta("XLMRobertaForSequenceClassification", max_position_embeddings=8194, **labels("LABEL_0")), XLMR_JSON,
    roberta_settings("XLMRobertaTokenizer", model_max_length=8192), dtype="f32")
add("intfloat/multilingual-e5-large", "sentence", xlm_roberta(), XLMR_JSON, roberta_settings("XLMRobertaTokenizer"), files=sentence(length=512))
add("sentence-transformers/paraphrase-multilingual-mpnet-base-v2", "sentence", xlm_roberta(gradient_checkpointing=False), XLMR_JSON, roberta_settings("XLMRobertaTokenizer"),
    files=sentence(normalize=False, length=128), more=BUFFER)
add("microsoft/Multilingual-MiniLM-L12-H384", "base", bert(None, architectures=..., vocab_size=250037, tokenizer_class="XLMRobertaTokenizer", hidden_size=384), XLMR_SPM, None,
    **{"class": "BertModel"}, rename=lambda key: "bert." + key)
add("almanach/camembert-base", "masked", camembert("CamembertForMaskedLM", bos_token_id=5, eos_token_id=6, output_past=True, vocab_size=32005),
    "camembert tokenizer.json sentencepiece.bpe.model", {"model_max_length": 512})
add("Jean-Baptiste/camembert-ner", "tokens", camembert("CamembertForTokenClassification", bos_token_id=5, eos_token_id=6, tokenizer_class="CamembertTokenizer",
    vocab_size=32005, **labels("O", "I-LOC", "I-PER", "I-MISC", "I-ORG")), "camembert sentencepiece.bpe.model",
    {**roberta_settings("CamembertTokenizer"), "additional_special_tokens": ["<s>NOTUSED", "</s>NOTUSED"]}, files=roberta_map())
add("dangvantuan/sentence-camembert-large", "sentence", camembert( bos_token_id=5, eos_token_id=6, vocab_size=32005), "camembert tokenizer.json sentencepiece.bpe.model",
    roberta_settings("CamembertTokenizer"), files={**modules(("", "Transformer"), ("1_Pooling", "Pooling")), **pooling(), "sentence_camembert_config.json": {"max_seq_length": 75, "do_lower_case": False}})
add("facebook/data2vec-text-base", "masked", config_of("data2vec-text", "Data2VecTextForMaskedLM", ROBERTA, LATER), ROBERTA_BPE, roberta_settings(add_prefix_space=False))
add("vinai/phobert-base-v2", "masked", roberta("RobertaForMaskedLM", tokenizer_class="PhobertTokenizer", vocab_size=64001, max_position_embeddings=258), "roberta vocab.json merges.txt", {}, refused="PhobertTokenizer")
add("vinai/bertweet-base", "masked", roberta("RobertaForMaskedLM", tokenizer_class="BertweetTokenizer", vocab_size=64001, max_position_embeddings=130), "bert vocab.txt", {}, refused="BertweetTokenizer")
# DistilBERT.
add("distilbert/distilbert-base-uncased", "masked", distilbert("DistilBertForMaskedLM"), BERT_JSON, {"do_lower_case": True, "model_max_length": 512},
    more=[("vocab_projector.weight", ["V", "H"], "=distilbert.embeddings.word_embeddings.weight")])
add("distilbert/distilbert-base-uncased-finetuned-sst-2-english", "sequence", distilbert("DistilBertForSequenceClassification", finetuning_task="sst-2", output_past=True,
    **labels("NEGATIVE", "POSITIVE")), BERT_VOCAB, {"do_lower_case": True, "model_max_length": 512})
add("distilbert/distilbert-base-cased-distilled-squad", "answers", distilbert("DistilBertForQuestionAnswering", output_past=True, vocab_size=28996), BERT_JSON, {"do_lower_case": False, "model_max_length": 512})
add("lxyuan/distilbert-base-multilingual-cased-sentiments-student", "sequence", distilbert("DistilBertForSequenceClassification", output_past=True, torch_dtype="float32", vocab_size=119547,
    **labels("positive", "neutral", "negative")), BERT_JSON, bert_settings(False, tokenizer_class="DistilBertTokenizer"))
add("sentence-transformers/distiluse-base-multilingual-cased-v2", "sentence", distilbert(vocab_size=119547), BERT_JSON, bert_settings(False, tokenizer_class="DistilBertTokenizer"),
    files={**modules(("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Dense", "Dense")), **pooling(),
           "2_Dense/config.json": {"in_features": 16, "out_features": 12, "bias": True, "activation_function": "torch.nn.modules.activation.Tanh"},
           "sentence_bert_config.json": {"max_seq_length": 128, "do_lower_case": False}},
    folders={"2_Dense/model.safetensors": {"linear.weight": [12, 16], "linear.bias": [12]}})
add("sentence-transformers/msmarco-distilbert-base-tas-b", "sentence", distilbert(), BERT_JSON, bert_settings(tokenizer_class="DistilBertTokenizer"),
    files={**modules(("", "Transformer"), ("1_Pooling", "Pooling")), **pooling("cls_token"), "sentence_distilbert_config.json": {"max_seq_length": 512, "do_lower_case": False}})
# ELECTRA, ALBERT, MPNet.
add("google/electra-small-discriminator", "replaced", config_of("electra", "ElectraForPreTraining", ELECTRA, {}), BERT_JSON, {"do_lower_case": True, "model_max_length": 512})
add("google/electra-small-generator", "masked", config_of("electra", "ElectraForMaskedLM", ELECTRA, {"hidden_size": 256}), BERT_JSON, {"do_lower_case": True, "model_max_length": 512})
add("cross-encoder/ms-marco-electra-base", "rank", config_of("electra", "ElectraForSequenceClassification", ELECTRA, {"embedding_size": 768, "hidden_size": 768,
    "sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity", **labels("LABEL_0")}), BERT_VOCAB, bert_settings(tokenizer_class="ElectraTokenizer"))
add("dbmdz/electra-large-discriminator-finetuned-conll03-english", "tokens", config_of("electra", "ElectraForTokenClassification", ELECTRA, {"vocab_loc": "",
    **labels("B-LOC", "B-MISC", "B-ORG", "B-PER", "I-LOC", "I-MISC", "I-ORG", "I-PER", "O")}), BERT_VOCAB, {"do_lower_case": True, "model_max_length": 512})
add("albert/albert-base-v2", "masked", config_of("albert", "AlbertForMaskedLM", ALBERT, {}), "albert tokenizer.json spiece.model", {"model_max_length": 512},
    more=[("predictions.decoder.weight", ["V", 8], "=albert.embeddings.word_embeddings.weight"), ("predictions.decoder.bias", ["V"], "=predictions.bias"),
          ("albert.pooler.weight", ["H", "H"], "f32"), ("albert.pooler.bias", ["H"], "f32")])
add("textattack/albert-base-v2-imdb", "sequence", config_of("albert", "AlbertForSequenceClassification", ALBERT, {"finetuning_task": "imdb", "layers_to_keep": []}),
    "albert spiece.model", {"model_max_length": 512}, files={"special_tokens_map.json": {"bos_token": "[CLS]", "eos_token": "[SEP]", "unk_token": "<unk>", "sep_token": "[SEP]", "pad_token": "<pad>",
    "cls_token": "[CLS]", "mask_token": {"content": "[MASK]", "single_word": False, "lstrip": True, "rstrip": False, "normalized": True}}})
add("ai4bharat/indic-bert", "masked", config_of("albert", "AlbertForMaskedLM", ALBERT, {"vocab_size": 200000, "attention_probs_dropout_prob": 0.0}), "albert spiece.model",
    {"keep_accents": True, "do_lower_case": True}, files={})
add("sentence-transformers/paraphrase-albert-small-v2", "sentence", config_of("albert", "AlbertModel", ALBERT, {"position_embedding_type": "absolute"}), "albert tokenizer.json spiece.model",
    {"do_lower_case": True, "remove_space": True, "keep_accents": False, "tokenizer_class": "AlbertTokenizer", "model_max_length": 512},
    files={**modules(("", "Transformer"), ("1_Pooling", "Pooling")), **pooling(), "sentence_albert_config.json": {"max_seq_length": 100, "do_lower_case": False}})
add("microsoft/mpnet-base", "masked", config_of("mpnet", "MPNetForMaskedLM", MPNET, {}), "mpnet vocab.txt", {"do_lower_case": True, "model_max_length": 512})
add("sentence-transformers/all-mpnet-base-v2", "sentence", config_of("mpnet", "MPNetForMaskedLM", MPNET, {"transformers_version": "4.8.2"}), "mpnet tokenizer.json vocab.txt",
    {"do_lower_case": True, "bos_token": "<s>", "eos_token": "</s>", "sep_token": "</s>", "cls_token": "<s>", "unk_token": "[UNK]", "pad_token": "<pad>", "mask_token": "<mask>",
     "tokenize_chinese_chars": True, "strip_accents": None, "model_max_length": 512, "tokenizer_class": "MPNetTokenizer"}, files=sentence(length=384), more=BUFFER, **{"class": "MPNetModel"})
add("sentence-transformers/multi-qa-mpnet-base-dot-v1", "sentence", config_of("mpnet", "MPNetForMaskedLM", MPNET, {}), "mpnet tokenizer.json vocab.txt",
    {"do_lower_case": True, "tokenizer_class": "MPNetTokenizer", "model_max_length": 512}, files=sentence("cls_token", normalize=False, length=512), **{"class": "MPNetModel"})
# DeBERTa.
add("microsoft/deberta-v3-small", "base", deberta(None, architectures=..., pooler_dropout=0, pooler_hidden_act="gelu", pooler_hidden_size=768), "deberta_v2 spm.model",
    {"do_lower_case": False, "vocab_type": "spm"}, **{"class": "DebertaV2Model"}, rename=lambda key: "deberta." + key, dtype="f16",
    more=[("deberta.embeddings.position_embeddings.weight", ["P", "H"], "f16"), ("mask_predictions.dense.weight", ["H", "H"], "f16"), ("mask_predictions.dense.bias", ["H"], "f16"),
          ("lm_predictions.lm_head.dense.weight", ["H", "H"], "f16"), ("lm_predictions.lm_head.dense.bias", ["H"], "f16"), ("lm_predictions.lm_head.LayerNorm.weight", ["H"], "f16"),
          ("lm_predictions.lm_head.LayerNorm.bias", ["H"], "f16"), ("lm_predictions.lm_head.bias", ["V"], "f16")])
add("microsoft/mdeberta-v3-base", "base", deberta(None, architectures=..., pooler_dropout=0, pooler_hidden_act="gelu", pooler_hidden_size=768, vocab_size=251000), "deberta_v2 spm.model",
    {"do_lower_case": False, "vocab_type": "spm"}, **{"class": "DebertaV2Model"}, rename=lambda key: "deberta." + key, dtype="f16")
add("MoritzLaurer/DeBERTa-v3-base-mnli-fever-anli", "sequence", deberta("DebertaV2ForSequenceClassification", pooler_dropout=0, pooler_hidden_act="gelu", pooler_hidden_size=768, legacy=True,
    pos_att_type=["p2c", "c2p"], **labels("entailment", "neutral", "contradiction")), "deberta_v2 tokenizer.json spm.model", {"do_lower_case": False, **SPECIAL, "sp_model_kwargs": {},
    "split_by_punct": False, "tokenizer_class": "DebertaV2Tokenizer", "vocab_type": "spm", "bos_token": "[CLS]", "eos_token": "[SEP]"})
add("MoritzLaurer/mDeBERTa-v3-base-mnli-xnli", "sequence", deberta("DebertaV2ForSequenceClassification", pooler_dropout=0, pooler_hidden_act="gelu", pooler_hidden_size=768, vocab_size=251000,
    **labels("entailment", "neutral", "contradiction")), "deberta_v2 tokenizer.json spm.model", {"do_lower_case": False, **SPECIAL, "split_by_punct": False, "tokenizer_class": "DebertaV2Tokenizer"})
add("cross-encoder/nli-deberta-v3-base", "sequence", deberta("DebertaV2ForSequenceClassification", pooler_dropout=0, pooler_hidden_act="gelu", pooler_hidden_size=768,
    **labels("contradiction", "entailment", "neutral")), "deberta_v2 tokenizer.json spm.model", {"do_lower_case": False, **SPECIAL, "split_by_punct": False, "tokenizer_class": "DebertaV2Tokenizer"})
add("mixedbread-ai/mxbai-rerank-base-v1", "rank", deberta("DebertaV2ForSequenceClassification", pooler_dropout=0, pooler_hidden_act="gelu", pooler_hidden_size=768, **labels("LABEL_0"), torch_dtype="float16"),
    "deberta_v2 tokenizer.json spm.model", {"do_lower_case": False, **SPECIAL, "split_by_punct": False, "tokenizer_class": "DebertaV2Tokenizer"}, dtype="f16")
add("microsoft/deberta-v2-xlarge", "masked", deberta("DebertaV2ForMaskedLM", conv_act="gelu", conv_kernel_size=3, attention_head_size=64, hidden_size=1536), "deberta_v2 spm.model",
    {"do_lower_case": False}, refused="conv_kernel_size is 3")
add("microsoft/deberta-base", "masked", config_of("deberta", None, DEBERTA, {"architectures": ...}), ROBERTA_JSON, {}, refused="it is DeBERTa v1")
# ModernBERT.
MODERN_SETTINGS = {"clean_up_tokenization_spaces": True, **SPECIAL, "model_input_names": ["input_ids", "attention_mask"], "model_max_length": 8192, "tokenizer_class": "PreTrainedTokenizerFast"}
add("answerdotai/ModernBERT-base", "masked", config_of("modernbert", "ModernBertForMaskedLM", MODERN, {}), "modernbert tokenizer.json", MODERN_SETTINGS, files={"special_tokens_map.json": SPECIAL})
add("Alibaba-NLP/gte-modernbert-base", "sentence", config_of("modernbert", "ModernBertModel", MODERN, {"transformers_version": "4.48.0", "torch_dtype": "float16"}), "modernbert tokenizer.json",
    MODERN_SETTINGS, files={**modules(("", "Transformer"), ("1_Pooling", "Pooling")), **pooling("cls_token", later=True), "sentence_bert_config.json": {"max_seq_length": 8192, "do_lower_case": False}}, dtype="f16")
add("nomic-ai/modernbert-embed-base", "sentence", config_of("modernbert", "ModernBertModel", MODERN, {}), "modernbert tokenizer.json", MODERN_SETTINGS,
    files=sentence(length=8192, later=True, own={"prompts": {}, "default_prompt_name": None, "similarity_fn_name": "cosine"}))
add("Alibaba-NLP/gte-reranker-modernbert-base", "rank", config_of("modernbert", "ModernBertForSequenceClassification", MODERN, {**labels("LABEL_0"), "torch_dtype": "float16",
    "sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Sigmoid"}}), "modernbert tokenizer.json", MODERN_SETTINGS, dtype="f16")
add("tasksource/ModernBERT-base-nli", "sequence", config_of("modernbert", "ModernBertForSequenceClassification", MODERN, labels("entailment", "neutral", "contradiction")), "modernbert tokenizer.json", MODERN_SETTINGS)
# EuroBERT.
EURO_SETTINGS = {"bos_token": "<|begin_of_text|>", "clean_up_tokenization_spaces": True, "eos_token": "<|end_of_text|>", "mask_token": "<|mask|>",
                 "model_input_names": ["input_ids", "attention_mask"], "model_max_length": 8192, "pad_token": "<|end_of_text|>", "tokenizer_class": "PreTrainedTokenizerFast"}
EURO_610 = {"hidden_size": 1152, "intermediate_size": 4096, "num_attention_heads": 18, "num_hidden_layers": 26, "num_key_value_heads": 6}
PLAIN = {"auto_map": None}
add("EuroBERT/EuroBERT-210m", "masked", config_of("eurobert", "EuroBertForMaskedLM", EURO, {}), "eurobert tokenizer.json", EURO_SETTINGS, reference=PLAIN)
add("EuroBERT/EuroBERT-610m", "masked", config_of("eurobert", "EuroBertForMaskedLM", EURO, EURO_610), "eurobert tokenizer.json", EURO_SETTINGS, reference=PLAIN)
# NomicBERT, GTE, Jina.
REMAP = {"architectures": None, "model_type": "nomic_bert", "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24, "hidden_act": "silu", "layer_norm_eps": 1e-12,
         "max_position_embeddings": 2048, "auto_map": None}
add("nomic-ai/nomic-embed-text-v1.5", "sentence", config_of("nomic_bert", "NomicBertModel", NOMIC, {}), BERT_JSON, bert_settings(), reference=REMAP,
    files={**modules(("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")), **pooling(), "sentence_bert_config.json": {"max_seq_length": 8192, "do_lower_case": False},
           "config_sentence_transformers.json": {"__version__": {"sentence_transformers": "2.4.0.dev0", "transformers": "4.37.2", "pytorch": "2.1.0+cu121"}, "prompts": {}, "default_prompt_name": None}})
add("Snowflake/snowflake-arctic-embed-m-long", "sentence", config_of("nomic_bert", "NomicBertModel", NOMIC, {}), BERT_JSON, bert_settings(), reference=REMAP, files=sentence("cls_token", length=2048, later=True))
add("nomic-ai/nomic-embed-text-v2-moe", "sentence", config_of("nomic_bert", "NomicBertModel", NOMIC, {"moe_every_n_layers": 2, "num_experts": 8, "moe_top_k": 2, "add_pooling_layer": False,
    "vocab_size": 250048, "activation_function": "gelu", "rotary_emb_base": 10000}), XLMR_JSON, roberta_settings("XLMRobertaTokenizer"), files=sentence(length=512), refused="moe_every_n_layers is 2")


def ntk(theta, factor):
    """What gte computes for Alibaba's fixed NTK: θ·f, and frequencies divided by f^(2/d)."""
    rope = {"rope_type": "default", "rope_theta": theta} if factor is None else {"rope_type": "linear", "rope_theta": theta * factor, "factor": factor ** (2 / 8)}
    return {"model_type": "gte", "auto_map": None, "rope_parameters": rope, "rope_scaling": None, "rope_theta": None, "position_embedding_type": None}


def new_keys(key):
    return key if key.startswith(("new.", "classifier", "lm_head")) else "new." + key.removeprefix("gte.")


add("Alibaba-NLP/gte-base-en-v1.5", "sentence", config_of("new", "NewModel", NEW, {}), BERT_JSON, bert_settings(model_max_length=32768), reference=ntk(500000, 2.0),
    files={**modules(("", "Transformer"), ("1_Pooling", "Pooling")), **pooling("cls_token", later=True), "sentence_bert_config.json": {"max_seq_length": 8192, "do_lower_case": False}},
    **{"class": "GteModel"}, rename=lambda key: None if key.startswith("pooler") else key)
add("Alibaba-NLP/gte-large-en-v1.5", "masked", config_of("new", "NewForMaskedLM", NEW, {"rope_theta": 160000}), BERT_JSON, bert_settings(), reference=ntk(160000, 2.0), **{"class": "GteForMaskedLM"}, rename=new_keys)
add("Alibaba-NLP/gte-multilingual-base", "sentence", config_of("new", "NewModel", NEW, {"rope_theta": 20000, "rope_scaling": {"factor": 8.0, "type": "ntk"}, "pad_token_id": 1, "type_vocab_size": 1,
    "vocab_size": 250048, "unpad_inputs": "true", "torch_dtype": "float16", **labels("LABEL_0", "LABEL_1")}), XLMR_JSON, roberta_settings("XLMRobertaTokenizer", model_max_length=32768),
    reference=ntk(20000, 8.0), files=sentence("cls_token", length=8192, later=True), **{"class": "GteForTokenClassification"}, rename=new_keys, dtype="f16")
add("Alibaba-NLP/gte-multilingual-reranker-base", "rank", config_of("new", "NewForSequenceClassification", NEW, {"rope_theta": 20000, "rope_scaling": {"factor": 8.0, "type": "ntk"}, "pad_token_id": 1, "type_vocab_size": 1,
    "vocab_size": 250048, **labels("LABEL_0")}), XLMR_JSON, roberta_settings("XLMRobertaTokenizer"), reference=ntk(20000, 8.0), **{"class": "GteForSequenceClassification"}, rename=new_keys, dtype="f16")
add("NovaSearch/stella_en_400M_v5", "sentence", config_of("new", "NewModel", NEW, {"rope_theta": 160000, "type_vocab_size": 2, "use_memory_efficient_attention": True, "unpad_inputs": True}), BERT_JSON,
    bert_settings(model_max_length=8192), reference=ntk(160000, 2.0), **{"class": "GteModel"}, rename=new_keys,
    files={**modules(("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Dense_1024", "Dense")), **pooling(later=True), "sentence_bert_config.json": {"max_seq_length": 512, "do_lower_case": False},
           "2_Dense_1024/config.json": {"in_features": 16, "out_features": 12, "bias": True, "activation_function": "torch.nn.modules.linear.Identity"},
           "config_sentence_transformers.json": {"__version__": {"sentence_transformers": "3.1.1"}, "prompts": {"s2p_query": "Instruct: Given a web search query, retrieve relevant passages that answer the query.\nQuery: "},
           "default_prompt_name": None, "similarity_fn_name": "cosine"}}, folders={"2_Dense_1024/model.safetensors": {"linear.weight": [12, 16], "linear.bias": [12]}})
add("Snowflake/snowflake-arctic-embed-m-v2.0", "sentence", config_of("gte", "GteModel", NEW, {"rope_scaling": None, "rope_theta": 160000, "pad_token_id": 1, "type_vocab_size": 1, "vocab_size": 250048}), XLMR_JSON,
    roberta_settings("XLMRobertaTokenizer"), reference=ntk(160000, None), files=sentence("cls_token", length=8192, later=True), rename=lambda key: None if key.startswith("pooler") else key)
JINA3 = {**ROBERTA, **LATER, "emb_pooler": None, "auto_map": {"AutoConfig": "jinaai/xlm-roberta-flash-implementation--configuration_xlm_roberta.XLMRobertaFlashConfig",
         "AutoModel": "jinaai/xlm-roberta-flash-implementation--modeling_lora.XLMRobertaLoRA"}, "lora_adaptations": ["retrieval.query", "retrieval.passage", "separation", "classification", "text-matching"],
         "lora_alpha": 1, "lora_rank": 4, "matryoshka_dimensions": [32, 64], "position_embedding_type": "rotary", "rotary_emb_base": 20000.0, "use_flash_attn": True, "max_position_embeddings": 8194, "vocab_size": 250002}
add("jinaai/jina-embeddings-v3", "sentence", config_of("xlm-roberta", "XLMRobertaModel", JINA3, {}), XLMR_JSON, roberta_settings("XLMRobertaTokenizer"), refused="jinaai/jina-embeddings-v3-hf",
    files=modules(("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")))
add("jinaai/jina-embeddings-v3-hf", "base", config_of("jina_embeddings_v3", "JinaEmbeddingsV3Model", ROBERTA, {"rope_parameters": {"rope_theta": 20000.0, "rope_type": "default"}, "max_position_embeddings": 8194, "vocab_size": 250002}),
    XLMR_JSON, roberta_settings("XLMRobertaTokenizer"))
add("jinaai/jina-embeddings-v2-base-en", "sentence", bert("JinaBertForMaskedLM", position_embedding_type="alibi", feed_forward_type="geglu", attn_implementation="torch", emb_pooler="mean",
    max_position_embeddings=8192, auto_map={"AutoConfig": "jinaai/jina-bert-implementation--configuration_bert.JinaBertConfig"}), BERT_JSON, bert_settings(), refused="ALiBi")
add("jinaai/jina-reranker-v2-base-multilingual", "rank", config_of("xlm-roberta", "XLMRobertaForSequenceClassification", {**ROBERTA, **LATER}, {"vocab_size": 250002, **labels("LABEL_0"), "max_position_embeddings": 1026, "emb_pooler": None,
    "use_flash_attn": True, "auto_map": {"AutoConfig": "configuration_xlm_roberta.XLMRobertaFlashConfig", "AutoModelForSequenceClassification": "modeling_xlm_roberta.XLMRobertaForSequenceClassification"}}), XLMR_JSON,
    roberta_settings("XLMRobertaTokenizer"), refused="auto_map", layout={"roberta.embeddings.word_embeddings.weight": ["V", 16], "roberta.emb_ln.weight": [16], "roberta.encoder.layers.0.mixer.Wqkv.weight": [48, 16]})
# ERNIE.
add("nghuyong/ernie-2.0-base-en", "base", config_of("ernie", "ErnieModel", ERNIE, {"task_type_vocab_size": 3, "use_task_id": ...}), BERT_VOCAB, {"do_lower_case": True}, more=[])
add("nghuyong/ernie-3.0-base-zh", "masked", config_of("ernie", "ErnieForMaskedLM", ERNIE, {"max_position_embeddings": 2048, "type_vocab_size": 4, "vocab_size": 40000, "classifier_dropout": None}), BERT_VOCAB,
    bert_settings(tokenizer_class="BertTokenizer"), files={"special_tokens_map.json": SPECIAL})
add("nghuyong/ernie-3.0-nano-zh", "base", config_of("ernie", "ErnieModel", ERNIE, {"max_position_embeddings": 2048, "type_vocab_size": 4, "task_type_vocab_size": 16}), BERT_VOCAB, {"do_lower_case": True}, weights="pytorch_model.bin")
add("shibing624/text2vec-base-multilingual", "sentence", bert(**{**MINILM, "vocab_size": 250037}), XLMR_JSON, {"tokenizer_class": "PreTrainedTokenizerFast", **ROBERTA_SPECIAL}, files=sentence(normalize=False, length=256))
add("shibing624/text2vec-base-chinese-paraphrase", "sentence", config_of("ernie", "ErnieModel", ERNIE, {"max_position_embeddings": 2048, "type_vocab_size": 4}), BERT_JSON, bert_settings(),
    files=sentence(normalize=False, length=256))
# Other families.
for name, model_type, reason in [
    ("google/mobilebert-uncased", "mobilebert", "bottlenecks"), ("junnyu/roformer_chinese_base", "roformer", "rotary"), ("google/bigbird-roberta-base", "big_bird", "sparse attention"),
    ("allenai/longformer-base-4096", "longformer", "global attention"), ("xlnet/xlnet-base-cased", "xlnet", "not supported"), ("funnel-transformer/small", "funnel", "not supported"),
    ("YituTech/conv-bert-base", "convbert", "not supported"), ("squeezebert/squeezebert-uncased", "squeezebert", "not supported"), ("openai-community/gpt2", "gpt2", "decoder"),
    ("Qwen/Qwen3-Embedding-0.6B", "qwen3", "decoder"), ("intfloat/e5-mistral-7b-instruct", "mistral", "decoder"), ("google/embeddinggemma-300m", "gemma3_text", "decoder"),
    ("sentence-transformers/sentence-t5-base", "t5", "encoder-decoder"), ("google/fnet-base", "fnet", "not supported"), ("studio-ousia/luke-base", "luke", "not supported"),
]:
    add(name, "base", config_of(model_type, None, BERT, {"architectures": ...}), BERT_VOCAB, {}, refused=reason)
# Models without a Transformer.
for name, kind, reason in [("sentence-transformers/static-retrieval-mrl-en-v1", "StaticEmbedding", "StaticEmbedding"), ("sentence-transformers/average_word_embeddings_glove.6B.300d", "WordEmbeddings", "WordEmbeddings")]:
    add(name, "sentence", {}, BERT_JSON, files=modules((f"0_{kind}", kind), ("1_Normalize", "Normalize") if kind == "StaticEmbedding" else ("1_Pooling", "Pooling")), refused=reason)
# Layouts of no repository in particular, each with one setting that changes results. They are not in docs/models.md.
add("variant: two biases of a tied head that differ", "masked", bert("BertForMaskedLM"), BERT_VOCAB, more=[("cls.predictions.decoder.bias", ["V"], "f32")])
add("variant: several poolings by flags", "sentence", bert(), BERT_VOCAB, files=sentence("cls_token+mean_tokens+max_tokens"))
add("variant: several poolings in another order, and Dense after them", "sentence", bert(), BERT_VOCAB,
    files={**modules(("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Dense", "Dense")), "1_Pooling/config.json": {"embedding_dimension": 16, "pooling_mode": ["mean", "cls"], "include_prompt": True},
           "2_Dense/config.json": {"in_features": 32, "out_features": 12, "bias": True, "activation_function": "torch.nn.modules.activation.Tanh"}},
    folders={"2_Dense/model.safetensors": {"linear.weight": [12, 32], "linear.bias": [12]}})
add("variant: linear scaling", "base", config_of("gte", "GteModel", NEW, {"rope_scaling": ..., "rope_theta": ..., "auto_map": ..., "rope_parameters": {"rope_theta": 160000.0, "rope_type": "linear", "factor": 4.0}, "position_embedding_type": ...,
    "pad_token_id": 0, "type_vocab_size": 1}), BERT_VOCAB, bert_settings())
add("variant: EuroBERT's older name of the pooling", "sequence", config_of("eurobert", "EuroBertForSequenceClassification", EURO, {**EURO_610, "head_dim": 64, "clf_pooling": "mean", **labels("a", "b", "c")}),
    "eurobert tokenizer.json", EURO_SETTINGS, reference={**PLAIN, "clf_pooling": None, "classifier_pooling": "mean"})
add("variant: EuroBERT that is trained on by transformers", "sentence", config_of("eurobert", "EuroBertModel", EURO, {"auto_map": ..., "rope_theta": ..., "rope_scaling": ..., "rope_parameters": {"rope_theta": 250000.0, "rope_type": "default"},
    "head_dim": 64, "classifier_pooling": "late"}), "eurobert tokenizer.json", EURO_SETTINGS, files=sentence(length=512))
add("variant: EuroBERT with biases", "base", config_of("eurobert", "EuroBertModel", EURO, {"attention_bias": True}), "eurobert tokenizer.json", EURO_SETTINGS, refused="attention_bias")
add("variant: Alibaba's mixed NTK", "base", config_of("new", "NewModel", NEW, {"rope_scaling": {"type": "ntk", "factor": 2.0, "mixed_b": 0.5}}), BERT_VOCAB, refused="ntk")
add("variant: Alibaba's model with a table of positions", "base", config_of("new", "NewModel", NEW, {"position_embedding_type": "absolute"}), BERT_VOCAB, refused="position_embedding_type")
add("variant: labels that are numbers", "sequence", bert("BertForSequenceClassification", id2label={"0": 1, "1": 2, "2": 3}, label2id={"1": 0, "2": 1, "3": 2}), BERT_VOCAB)
add("variant: labels with a gap", "sequence", bert("BertForSequenceClassification", id2label={"0": "a", "2": "b"}), BERT_VOCAB, refused="number them from 0 on")
add("variant: LayerNorm after the pooling", "sentence", bert(), BERT_VOCAB, files={**modules(("", "Transformer"), ("1_Pooling", "Pooling"), ("2_LayerNorm", "LayerNorm")), **pooling(), "2_LayerNorm/config.json": {"dimension": 16}},
    folders={"2_LayerNorm/pytorch_model.bin": {"norm.weight": [16], "norm.bias": [16]}})
add("variant: Normalize before Dropout and Dense with residuals", "sentence", bert(), BERT_VOCAB, dtype="f16",
    files={**modules(("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize"), ("3_Dropout", "Dropout"), ("4_Dense", "Dense"), ("5_Dense", "Dense")), **pooling(),
           "3_Dropout/config.json": {"dropout": 0.2},
           "4_Dense/config.json": {"in_features": 16, "out_features": 16, "bias": True, "activation_function": "torch.nn.modules.activation.Tanh", "use_residual": True},
           "5_Dense/config.json": {"in_features": 16, "out_features": 12, "bias": False, "activation_function": "torch.nn.modules.linear.Identity", "use_residual": True}},
    folders={"4_Dense/model.safetensors": {"linear.weight": [16, 16], "linear.bias": [16]}, "5_Dense/model.safetensors": {"linear.weight": [12, 16], "residual.weight": [12, 16]}})
# Of ALBERT one layer is run as many times; ModernBERT's last hidden state is normalised.
for name, config, tokenizer, settings, below in [
    ("ALBERT", config_of("albert", "AlbertModel", ALBERT, {}), "albert spiece.model", None, "config_args"),
    ("ModernBERT", config_of("modernbert", "ModernBertModel", MODERN, {}), "modernbert tokenizer.json", MODERN_SETTINGS, "config_kwargs"),
]:
    add(f"variant: the mean of all hidden states of {name}", "sentence", config, tokenizer, settings,
        files={**modules(("", "Transformer"), ("1_WeightedLayerPooling", "WeightedLayerPooling"), ("2_Pooling", "Pooling")), **pooling(folder="2_Pooling"), "sentence_bert_config.json": {"max_seq_length": 32, below: {"output_hidden_states": True}},
               "1_WeightedLayerPooling/config.json": {"word_embedding_dimension": 16, "layer_start": 0, "num_hidden_layers": 2}},
        folders={"1_WeightedLayerPooling/pytorch_model.bin": {"layer_weights": [3]}})
add("variant: a mean of hidden states that are not asked for", "sentence", bert(), BERT_VOCAB,
    files={**modules(("", "Transformer"), ("1_WeightedLayerPooling", "WeightedLayerPooling"), ("2_Pooling", "Pooling")), **pooling(folder="2_Pooling"),
           "1_WeightedLayerPooling/config.json": {"word_embedding_dimension": 16, "layer_start": 1, "num_hidden_layers": 2}}, refused="output_hidden_states")
