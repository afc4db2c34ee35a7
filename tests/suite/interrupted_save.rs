//! What a save that was killed leaves.

use crate::checkpoint_files::tiny;
use crate::prelude::*;
use std::os::unix::fs::symlink;

fn saved(config: &BertEmbeddingsConfig) -> TempDir {
    let dir = tempdir().unwrap();
    config.init(&device()).save_pretrained(dir.path()).unwrap();
    dir
}

/// A path is read as what was saved into a directory.
fn assert_is(path: &Path, expected: &TempDir) {
    let [found, expected] =
        [path, expected.path()].map(|path| BertEmbeddings::from_pretrained(path, &device()).unwrap());
    assert_eq!(found.config().layer_norm_eps, expected.config().layer_norm_eps);
    assert_eq!(all_values(&found), all_values(&expected));
}

/// A directory whose `old` files a save replaces by the `new` ones, killed when it was complete and `moved` files were in
/// their place.
fn interrupted(old: &Path, new: &Path, moved: usize) -> TempDir {
    let dir = tempdir().unwrap();
    let saved = dir.path().join(".burn_bert_saved");
    fs::create_dir(&saved).unwrap();
    for (i, name) in ["config.json", "model.safetensors"].into_iter().enumerate() {
        fs::copy(old.join(name), dir.path().join(name)).unwrap();
        let to = if i < moved { dir.path() } else { &saved };
        fs::copy(new.join(name), to.join(name)).unwrap();
    }
    dir
}

#[test]
fn a_save_that_was_killed_when_it_was_complete_is_finished_by_whoever_comes_next_and_replaced_by_a_save() {
    let (old, new) = (saved(&tiny()), saved(&tiny().with_layer_norm_eps(1e-5)));
    for moved in 0..=2 {
        let next: [fn(&Path); 4] = [
            |_dir| (), // the load that follows
            |dir| drop(BertEmbeddings::from_pretrained(dir.join("model.safetensors"), &device()).unwrap()),
            |dir| _ = BertEmbeddingsConfig::from_pretrained(dir).unwrap(),
            |dir| {
                BertEmbeddings::from_pretrained(dir, &device()).unwrap().save_pretrained(dir).unwrap();
            },
        ];
        for next in next {
            let dir = interrupted(old.path(), new.path(), moved);
            next(dir.path());
            assert_is(dir.path(), &new);
            assert_eq!(files_of(&dir).len(), 2, "nothing hidden is left");
        }
    }
    let dir = interrupted(old.path(), new.path(), 1);
    let last = saved(&tiny().with_layer_norm_eps(1e-3));
    BertEmbeddings::from_pretrained(last.path(), &device()).unwrap().save_pretrained(dir.path()).unwrap();
    assert_is(dir.path(), &last);
}

/// As in a directory that the reader may not write into: what stands in the way of one file stops the moving of all.
#[test]
fn a_save_that_was_killed_when_it_was_complete_is_read_where_nothing_can_be_moved() {
    let (old, new) = (saved(&tiny()), saved(&tiny().with_layer_norm_eps(1e-5)));
    let dir = interrupted(old.path(), new.path(), 0);
    fs::write(dir.path().join("a_folder"), "a file").unwrap();
    fs::create_dir(dir.path().join(".burn_bert_saved/a_folder")).unwrap();
    for path in [dir.path().to_path_buf(), dir.path().join("model.safetensors")] {
        assert_is(&path, &new);
    }
    assert_eq!(BertEmbeddingsConfig::from_pretrained(dir.path()).unwrap().layer_norm_eps, 1e-5);
    tiny().init(&device()).save_pretrained(dir.path()).expect_err("a save writes");
}

#[test]
fn what_a_save_left_that_was_killed_before_it_was_complete_is_not_read_and_goes_with_the_next_save() {
    let new = saved(&tiny().with_layer_norm_eps(1e-5));
    for written in 0..=2 {
        let (old, dir) = (saved(&tiny()), saved(&tiny()));
        let part = dir.path().join(".burn_bert_save_killed");
        fs::create_dir(&part).unwrap();
        for name in &["config.json", "model.safetensors"][..written] {
            fs::copy(old.path().join(name), dir.path().join(name)).unwrap();
            fs::copy(new.path().join(name), part.join(name)).unwrap();
        }
        let module = BertEmbeddings::from_pretrained(dir.path(), &device()).unwrap();
        assert_eq!(module.config().layer_norm_eps, 1e-12);
        // That of a process that lives is locked.
        let lock = fs::File::open(&part).unwrap();
        lock.try_lock().unwrap();
        module.save_pretrained(dir.path()).unwrap();
        assert!(part.exists(), "it is still written");
        drop(lock);
        module.save_pretrained(dir.path()).unwrap();
        assert_eq!(files_of(&dir).len(), 2, "nothing of it is left");
    }
}

/// A directory may come from anyone.
#[test]
fn no_file_is_moved_out_of_a_directory_or_into_it() {
    let (dir, outside) = (saved(&tiny()), folder(&[]));
    let complete = dir.path().join(".burn_bert_saved");
    fs::create_dir_all(complete.join("link")).unwrap();
    fs::write(complete.join("link/file"), "").unwrap();
    symlink(outside.path(), dir.path().join("link")).unwrap();
    let module = BertEmbeddings::from_pretrained(dir.path(), &device()).unwrap();
    module.save_pretrained(dir.path()).unwrap_err();
    assert!(files_of(&outside).is_empty());
    fs::remove_dir_all(&complete).unwrap();
    fs::write(outside.path().join("file"), "").unwrap();
    symlink(outside.path(), &complete).unwrap();
    BertEmbeddings::from_pretrained(dir.path(), &device()).unwrap();
    assert_eq!(files_of(&outside).len(), 1);
}

#[test]
fn a_load_beside_saves_has_config_and_weights_of_one_of_them() {
    let dir = tempdir().unwrap();
    // γ says which ε belongs to the weights.
    let save = |epsilon: f64| {
        let mut module = tiny().with_layer_norm_eps(epsilon).init(&device());
        module.layer_norm.as_mut().unwrap().gamma =
            Param::from_tensor(Tensor::full([tiny().hidden_size], epsilon, &device()));
        module.save_pretrained(dir.path()).unwrap();
    };
    let agrees = |module: &BertEmbeddings| {
        let gamma = values(module.layer_norm.as_ref().unwrap().gamma.val())[0];
        assert!((gamma / module.config().layer_norm_eps - 1.0).abs() < 1e-6, "{gamma}");
    };
    save(1e-3);
    std::thread::scope(|scope| {
        let saves = scope.spawn(|| (0..60).for_each(|i| save([1e-5, 1e-3][i % 2])));
        while !saves.is_finished() {
            agrees(&BertEmbeddings::from_pretrained(dir.path(), &device()).unwrap());
        }
    });
}
