//! The encoder's fused operators: against naive loops, against the reference made of Burn's operations, by central
//! differences, and on any number of threads.

mod add_layer_norm;
mod attention;
mod bias_gelu;
mod leaves;
mod linear;
