package spool

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// TestMain runs the programs that TestKill and TestKillInHealing kill.
func TestMain(m *testing.M) {
	if dir := os.Getenv("SPOOL_TEST_WRITE"); dir != "" {
		writeForever(dir)
	}
	if dir := os.Getenv("SPOOL_TEST_HEAL_DIR"); dir != "" {
		healAndDie(dir, os.Getenv("SPOOL_TEST_HEAL"))
	}
	os.Exit(m.Run())
}

// writeForever appends from several goroutines until it is killed, and prints a line after each
// append that returned. Meanwhile it begins new files all the time.
func writeForever(dir string) {
	l, err := Open(Config{Dir: dir, SegmentBytes: 50_000})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	start := l.recovery.Records
	for w := range 8 {
		go func() {
			for i := 0; ; i++ {
				name := fmt.Sprintf("%d.%d.%d", start, w, i)
				if err := l.Append([]byte(name + " " + strings.Repeat("x", i%700))); err != nil {
					fmt.Println("error", err)
					os.Exit(1)
				}
				if _, err := os.Stdout.WriteString(name + "\n"); err != nil {
					os.Exit(1)
				}
			}
		}()
	}
	for {
		if err := l.Rotate(); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
	}
}

// TestKill kills a writing process with SIGKILL repeatedly. Afterwards every record whose Append
// returned is delivered once.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	acked := map[string]bool{}
	for round := range 8 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "SPOOL_TEST_WRITE="+dir)
		out, err := cmd.StdoutPipe()
		errtest.Must(t, err)
		errtest.Must(t, cmd.Start())
		lines := bufio.NewReader(out)
		for n := 0; ; n++ {
			line, err := lines.ReadString('\n')
			if err == io.EOF {
				break
			}
			if err != nil || strings.HasPrefix(line, "error") {
				t.Fatalf("the writing process: %v %s", err, line)
			}
			acked[strings.TrimSpace(line)] = true
			if n == 300+round*137 {
				errtest.Must(t, cmd.Process.Kill())
			}
		}
		_ = cmd.Wait() // it was killed

		l := open(t, Config{Dir: dir, SegmentBytes: 50_000})
		found := map[string]bool{}
		recs, _ := drain(t, l, 100)
		for _, r := range recs {
			name, fill, _ := strings.Cut(r, " ")
			if found[name] || strings.Trim(fill, "x") != "" {
				t.Errorf("round %d: %s was delivered twice or damaged", round, name)
			}
			found[name] = true
		}
		for name := range acked {
			if !found[name] {
				t.Fatalf("round %d: %s is lost (of %d acknowledged; recovery %+v)", round, name, len(acked), l.recovery)
			}
		}
		if l.recovery.DamagedBytes != 0 {
			t.Errorf("round %d: the recovery is %+v, want no damage", round, l.recovery)
		}
		errtest.Must(t, l.Close())
	}
	t.Logf("%d records acknowledged", len(acked))
}
