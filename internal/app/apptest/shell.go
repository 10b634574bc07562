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

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
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
		errtest.Must(t, os.MkdirAll(filepath.Dir(p), 0o755))
		errtest.Must(t, os.WriteFile(p, []byte(pair[1]), 0o644))
	}
}

// Shell runs a script with the program on its path, and returns its combined output and exit code.
func Shell(t *testing.T, dir, script string) (string, int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
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

// RunShell is like Shell, and fails the test unless the exit code is 0.
func RunShell(t *testing.T, dir, script string) string {
	t.Helper()
	out, code := Shell(t, dir, script)
	if code != 0 {
		t.Fatalf("the script ended with %d, want 0:\n%s\nIts output:\n%s", code, script, out)
	}
	return out
}

// WantTexts reports an error for each text that the output lacks.
func WantTexts(t *testing.T, output string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(output, text) {
			t.Errorf("the output lacks %q:\n%s", text, output)
		}
	}
}

// Page returns a page of docs.
func Page(t *testing.T, name string) string {
	t.Helper()
	root, err := Root()
	errtest.Must(t, err)
	text, err := os.ReadFile(filepath.Join(root, "docs", name))
	errtest.Must(t, err)
	return string(text)
}

// Blocks returns the content of the blocks of a language of a page.
func Blocks(page, language string) []string { return blocks("(?s)```"+language+"\n(.*?)```", page) }

// Fences returns the content of the bash blocks of a page, and of those without a language.
func Fences(page string) []string { return blocks("(?s)```(?:bash)?\n(.*?)```", page) }

func blocks(pattern, page string) (out []string) {
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(page, -1) {
		out = append(out, m[1])
	}
	return out
}
