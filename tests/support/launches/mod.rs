//! The kernels that CubeCL launches.

use burn::prelude::*;
use burn_cubecl::cubecl::logging::{LaunchObservation, LaunchObserver};
use std::sync::{Arc, Mutex};

/// Notes the kernels of the whole process: one caller at a time.
#[derive(Default)]
struct Launches(Mutex<Vec<String>>);

impl LaunchObserver for Launches {
    fn launched(&self, kernel: &'static str) {
        let name = kernel.split('<').next().unwrap_or(kernel);
        self.0.lock().unwrap().push(name.rsplit("::").next().unwrap_or(name).to_owned());
    }
}

/// The names of the kernels that `f` launches, in order.
pub fn launches<T>(device: &Device, mut f: impl FnMut() -> T) -> Vec<String> {
    drop(f()); // whatever is done once
    device.sync().unwrap();
    let launches = Arc::new(Launches::default());
    let observation = LaunchObservation::new(launches.clone());
    let kept = f();
    device.sync().unwrap();
    drop((observation, kept));
    let launches = launches.0.lock().unwrap();
    launches.clone()
}
