use super::*;

#[test]
fn every_kind_of_the_syncers_is_looked_for_once() {
    let kinds = all_kinds();
    assert!(kinds.contains(&crate::model::kinds::POD) && kinds.contains(&crate::model::kinds::TIER));
    let mut names: Vec<String> = kinds.iter().map(|kind| format!("{}/{}", kind.group, kind.name)).collect();
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);
}
