//! The kernels that CubeCL launches.

#![allow(dead_code)] // every test file takes what it needs

use burn::prelude::*;
use burn_cubecl::cubecl::logging::{LaunchObservation, LaunchObserver, TimingMethod, TimingRequest};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Notes the kernels of the whole process: one caller at a time.
struct Launches {
    timing: TimingRequest,
    launched: Mutex<Vec<String>>,
    timed: Mutex<Vec<(String, Duration)>>,
}

impl LaunchObserver for Launches {
    fn launched(&self, kernel: &'static str) {
        self.launched.lock().unwrap().push(short(kernel));
    }

    fn timing(&self) -> TimingRequest {
        self.timing
    }

    fn timed(&self, kernel: &'static str, duration: Duration, _method: TimingMethod) {
        self.timed.lock().unwrap().push((short(kernel), duration));
    }
}

/// The last part of a kernel's name.
fn short(kernel: &str) -> String {
    let name = kernel.split('<').next().unwrap_or(kernel);
    name.rsplit("::").next().unwrap_or(name).to_owned()
}

fn observed<T>(device: &Device, timing: TimingRequest, mut f: impl FnMut() -> T) -> Arc<Launches> {
    drop(f()); // whatever is done once
    device.sync().unwrap();
    let launches = Arc::new(Launches { timing, launched: Mutex::default(), timed: Mutex::default() });
    let observation = LaunchObservation::new(launches.clone());
    let kept = f();
    device.sync().unwrap();
    drop((observation, kept));
    launches
}

/// The names of the kernels that `f` launches, in order.
pub fn launches<T>(device: &Device, f: impl FnMut() -> T) -> Vec<String> {
    observed(device, TimingRequest::None, f).launched.lock().unwrap().clone()
}

/// The same with how long each kernel runs, one at a time.
pub fn timed_launches<T>(device: &Device, f: impl FnMut() -> T) -> Vec<(String, Duration)> {
    observed(device, TimingRequest::Resolved, f).timed.lock().unwrap().clone()
}
