package spool

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// Copy copies a log to a new folder, also while a process uses the log. It returns the number of
// files with records. Records that are acknowledged meanwhile may be missing, so a backup must call
// Copy before it copies the store to which they are shipped. Records that are appended meanwhile may
// be missing too. A log that does not exist counts as empty.
func Copy(dir, to string) (files int, err error) {
	paths, err := filepath.Glob(filepath.Join(globSafe(dir), "*.seg"))
	if err != nil {
		return 0, fmt.Errorf("spool: copy: %w", err)
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return 0, fmt.Errorf("spool: copy: %w", err)
	}
	// Copy the position first: if it is too old, records are delivered twice, which is harmless.
	// If it were too new, records would never be delivered.
	for _, path := range append([]string{filepath.Join(dir, "ack")}, paths...) {
		err := copyFile(path, filepath.Join(to, filepath.Base(path)))
		if errors.Is(err, fs.ErrNotExist) {
			continue // acknowledged and removed meanwhile
		}
		if err != nil {
			return files, fmt.Errorf("spool: copy: %w", err)
		}
		if filepath.Ext(path) == ".seg" {
			files++
		}
	}
	return files, syncDir(to)
}

// copyTries is how often the marks are read if one is being overwritten.
const copyTries = 100

// CopyMarks copies the marks of a file to a new file, also while a process uses them. It returns
// their number. A file that does not exist has none. Call it before Copy: a mark is cleared only
// after its count was appended to the log, so that at least one copy contains it.
func CopyMarks(from, to string) (marks int, err error) {
	var data []byte
	for range copyTries {
		if data, err = os.ReadFile(from); errors.Is(err, fs.ErrNotExist) {
			return 0, nil
		}
		if err != nil {
			return 0, fmt.Errorf("marks: copy: %w", err)
		}
		torn := false
		marks = 0
		for place := range slices.Chunk(data, markBytes) {
			switch _, state := readMark(place); state {
			case markHeld:
				marks++
			case markBroken:
				torn = true
			}
		}
		if !torn {
			break
		}
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return 0, fmt.Errorf("marks: copy: %w", err)
	}
	if err := writeNew(to, bytes.NewReader(data)); err != nil {
		return 0, fmt.Errorf("marks: copy: %w", err)
	}
	return marks, syncDir(filepath.Dir(to))
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	return writeNew(to, in)
}

// writeNew writes a file that must not exist yet, and syncs it.
func writeNew(to string, in io.Reader) (err error) {
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if _, err := io.Copy(out, in); err != nil {
		return err
	}
	return out.Sync()
}
