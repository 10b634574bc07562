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

// Copy writes what a log holds into a new folder, while a process may use the
// log, and gives the number of files with records. What is acknowledged meanwhile
// may be missing, so it is called before that is copied where it is stored; what
// is appended meanwhile may be missing too. A log that is not there holds nothing.
func Copy(dir, to string) (files int, err error) {
	paths, err := filepath.Glob(filepath.Join(globSafe(dir), "*.seg"))
	if err != nil {
		return 0, fmt.Errorf("spool: copy: %w", err)
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return 0, fmt.Errorf("spool: copy: %w", err)
	}
	// The position first: records behind an older one are delivered twice, which is
	// harmless, and behind a newer one never.
	for _, path := range append([]string{filepath.Join(dir, "ack")}, paths...) {
		err := copyFile(path, filepath.Join(to, filepath.Base(path)))
		if errors.Is(err, fs.ErrNotExist) {
			continue // acknowledged meanwhile
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

// copyTries is how often the marks are read again where one is being overwritten.
const copyTries = 100

// CopyMarks writes the marks of a file into a new file, while a process may use
// them, and gives their number. A file that is not there holds none. It is called
// before Copy: what a mark says goes into the log before the mark is cleared.
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

// writeNew writes a file that must not be there yet, and syncs it.
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
