//! Writes blocks into marked places of documents, so that refreshing them is mechanical.
//!
//! A place begins with the line `<!-- pando-bench report: NAME -->` and ends with the next line
//! `<!-- end -->`; what stands between them is replaced.

use std::path::Path;

use super::ReportError;
use super::markdown::Block;

const END: &str = "<!-- end -->";

/// Replaces what the documents below `root` have in the blocks' places.
pub(super) fn refresh(root: &Path, blocks: &[Block]) -> Result<(), ReportError> {
    for block in blocks {
        let path = root.join(block.document);
        let text = std::fs::read_to_string(&path).map_err(|source| ReportError::Read {
            path: path.clone(),
            source,
        })?;
        let marker = marker(block.name);
        let replaced = replace(&text, &marker, &block.text).ok_or(ReportError::NoPlace {
            path: path.clone(),
            marker,
        })?;
        std::fs::write(&path, replaced).map_err(|source| ReportError::Write { path, source })?;
    }
    Ok(())
}

fn marker(name: &str) -> String {
    format!("<!-- pando-bench report: {name} -->")
}

/// `None` when the place is not there or does not end.
fn replace(text: &str, marker: &str, block: &str) -> Option<String> {
    let start = text.find(marker)? + marker.len();
    let end = start + text[start..].find(END)?;
    Some([&text[..start], "\n\n", block.trim(), "\n\n", &text[end..]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marked_place_is_replaced_again_and_again() {
        let text = "a\n<!-- pando-bench report: x -->\nold\n<!-- end -->\nb\n";
        let expected = "a\n<!-- pando-bench report: x -->\n\nnew\n\n<!-- end -->\nb\n";
        let once = replace(text, &marker("x"), "new\n").unwrap();
        assert_eq!(once, expected);
        assert_eq!(replace(&once, &marker("x"), "new").unwrap(), expected);
        assert!(replace(text, &marker("y"), "new").is_none());
        assert!(replace("<!-- pando-bench report: x --> no end", &marker("x"), "").is_none());
    }

    #[test]
    fn a_document_without_the_place_is_named() {
        let root = std::env::temp_dir().join(format!("docs-{}", std::process::id()));
        std::fs::create_dir_all(&root).unwrap();
        std::fs::write(root.join("README.md"), "nothing").unwrap();
        let block = Block {
            document: "README.md",
            name: "redis",
            text: "| a |".into(),
        };
        let error = refresh(&root, &[block]).unwrap_err().to_string();
        assert!(
            error.ends_with("has no place marked `<!-- pando-bench report: redis -->`"),
            "{error}"
        );
        std::fs::remove_dir_all(&root).unwrap();
    }
}
