// Command notices writes the licences of the modules that the gatehouse binary
// is made of to standard output. Run it in the repository's root.
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "notices:", err)
		os.Exit(1)
	}
}

func run() error {
	list := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}} {{.Dir}}{{end}}{{end}}", "./cmd/gatehouse")
	list.Stderr = os.Stderr
	text, err := list.Output()
	if err != nil {
		return err
	}
	modules := strings.Fields(strings.ReplaceAll(string(bytes.TrimSpace(text)), " ", "\x00"))
	slices.Sort(modules)
	out := bufio.NewWriter(os.Stdout)
	fmt.Fprintf(out, "# Third-party notices\n\ngatehouse is made with the modules below, under their licences. `make notices` writes this file.\n")
	for _, m := range slices.Compact(modules) {
		parts := strings.Split(m, "\x00")
		if err := notice(out, parts[0], parts[1], parts[2]); err != nil {
			return err
		}
	}
	return out.Flush()
}

// notice writes a module's licence files and notices.
func notice(out *bufio.Writer, module, version, dir string) error {
	fmt.Fprintf(out, "\n## %s %s\n", module, version)
	found := false
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := strings.ToUpper(e.Name())
		if e.IsDir() || !slices.ContainsFunc([]string{"LICENSE", "LICENCE", "COPYING", "NOTICE", "COPYRIGHT"}, func(p string) bool { return strings.HasPrefix(name, p) }) || strings.HasSuffix(name, ".GO") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		found = true
		fmt.Fprintf(out, "\n```text\n%s\n```\n", strings.TrimSpace(strings.ReplaceAll(string(text), "```", "'''")))
	}
	if !found {
		return fmt.Errorf("%s %s has no licence file", module, version)
	}
	return nil
}
