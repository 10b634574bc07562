package apptest

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// PolicyCommand runs `gatehouse policy` and returns its output and exit code.
func PolicyCommand(t *testing.T, dir string, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), Binary(t), append([]string{"policy"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// WriteFiles writes files, given as path, content, path, content.
func WriteFiles(t *testing.T, dir string, pairs ...string) {
	t.Helper()
	for pair := range slices.Chunk(pairs, 2) {
		p := filepath.Join(dir, pair[0])
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(pair[1]), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// Shell runs a script with the program on its path, and returns its combined output and exit code.
func Shell(t *testing.T, dir, script string) (string, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-s")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(Binary(t))+":"+os.Getenv("PATH"))
	cmd.Stdin = strings.NewReader(script)
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// Fences returns the shell blocks of a page, and those without a language. The second element of
// each is its content.
func Fences(page string) [][]string {
	return regexp.MustCompile("(?s)```(?:bash)?\n(.*?)```").FindAllStringSubmatch(page, -1)
}
