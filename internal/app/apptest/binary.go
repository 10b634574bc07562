package apptest

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// Binary returns the path of the program. The first test process after a change of a source file
// builds it; the others only compare the files with a list that this process wrote. Each process has
// its own link to the program, so that the next build does not remove it.
func Binary(t testing.TB) string {
	t.Helper()
	skipInInnerLoop(t)
	path, err := build()
	errtest.Must(t, err)
	return path
}

const program = "github.com/gatehouse-dev/gatehouse/cmd/gatehouse"

var build = sync.OnceValues(func() (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	name := fmt.Sprintf("gatehouse-test-bin-%d-%x", os.Getuid(), sha256.Sum256([]byte(root)))[:48]
	args := []string{"build", "-buildvcs=false", "-ldflags=-s -w"} // without debug information, linking takes half the time
	if Race {
		args, name = append(args, "-race"), name+"-race"
	}
	kept := filepath.Join(os.TempDir(), name)
	lock, err := os.OpenFile(kept+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	if !unchanged(kept) {
		if err := rebuild(root, kept, args); err != nil {
			return "", err
		}
	}
	removeOld()
	dir, err := os.MkdirTemp("", ownDir)
	if err != nil {
		return "", err
	}
	own = dir
	out := filepath.Join(dir, "gatehouse")
	return out, os.Link(kept, out)
})

// rebuild builds the program and lists its sources as they were before.
func rebuild(root, kept string, args []string) error {
	if err := os.Remove(listOf(kept)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	names, err := sources(root)
	if err != nil {
		return err
	}
	list := statAll(names)
	if text, err := exec.Command("go", append(args, "-o", kept, program)...).CombinedOutput(); err != nil {
		return fmt.Errorf("build: %w\n%s", err, text)
	}
	return os.WriteFile(listOf(kept), list, 0o600)
}

// listOf returns the file with the sources of a program: a line for the Go version, and one with
// size, time and name for each source.
func listOf(kept string) string { return kept + ".sources" }

// unchanged reports whether the program is built from the sources as they are.
//
// It stats each source. `go test` reuses a cached result until a file changes that the tests have
// opened or inspected. It does not know that the tests build the program, so without this it would
// answer "(cached)" after a change.
func unchanged(kept string) bool {
	list, err := os.ReadFile(listOf(kept))
	if err != nil {
		return false
	}
	if _, err := os.Stat(kept); err != nil {
		return false
	}
	var names []string
	for line := range strings.Lines(string(list)) {
		if _, name, ok := strings.Cut(line, "\t"); ok {
			names = append(names, strings.TrimSuffix(name, "\n"))
		}
	}
	return bytes.Equal(statAll(names), list)
}

// sources returns the files that the program is built from, and their folders, because a new file
// changes its folder.
func sources(root string) ([]string, error) {
	const files = `{{if not .Standard}}{{$dir := .Dir}}{{range .GoFiles}}{{$dir}}/{{.}}
{{end}}{{range .EmbedFiles}}{{$dir}}/{{.}}
{{end}}{{end}}`
	text, err := exec.Command("go", "list", "-deps", "-f", files, program).Output()
	if err != nil {
		return nil, fmt.Errorf("list the sources: %w", err)
	}
	names := []string{filepath.Join(root, "go.mod"), filepath.Join(root, "go.sum")}
	for name := range strings.Lines(string(text)) {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name, filepath.Dir(name))
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// statAll returns the list of the sources. A source that is gone has a line that no file has.
func statAll(names []string) []byte {
	var list bytes.Buffer
	fmt.Fprintln(&list, runtime.Version())
	for _, name := range names {
		if info, err := os.Stat(name); err != nil {
			fmt.Fprintf(&list, "gone\t%s\n", name)
		} else {
			fmt.Fprintf(&list, "%d %d\t%s\n", info.Size(), info.ModTime().UnixNano(), name)
		}
	}
	return list.Bytes()
}

// Root returns the folder of the repository: the nearest one with a go.mod.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("no go.mod here or above")
		}
		dir = up
	}
}

// ownDir is the prefix of the folder with a test process's program.
const ownDir = "gatehouse-apptest-"

var own string

// Main runs the tests of a package, and then removes this process's program.
func Main(m *testing.M) {
	code := m.Run()
	if own != "" {
		_ = os.RemoveAll(own)
	}
	os.Exit(code)
}

// removeOld removes the programs of test processes that were killed.
func removeOld() {
	old, _ := filepath.Glob(filepath.Join(os.TempDir(), ownDir+"*")) // the pattern is valid
	for _, dir := range old {
		if info, err := os.Stat(dir); err == nil && time.Since(info.ModTime()) > 2*time.Hour {
			_ = os.RemoveAll(dir)
		}
	}
}
