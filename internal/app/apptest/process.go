package apptest

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// Children returns the ids of a process's child processes.
func Children(t testing.TB, pid int) []int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(files) == 0 {
		t.Skip("no /proc here")
	}
	var found []int
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the process has ended
		}
		rest := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		if len(rest) > 1 && rest[1] == strconv.Itoa(pid) {
			child, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			if err == nil {
				found = append(found, child)
			}
		}
	}
	return found
}
