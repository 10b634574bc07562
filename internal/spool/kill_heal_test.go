package spool

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// dyingFile is a file whose sync fails when failing is set, and whose process is killed at one step
// of the recovery that follows.
type dyingFile struct {
	*os.File
	heals bool // it is the new file of the recovery
	at    string
}

// failing makes syncs fail from now on, except those of the new file of a recovery.
var failing bool //nolint:gochecknoglobals // of the process that is killed

// die ends this process as kill -9 does.
func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

func (f *dyingFile) step(name string) {
	if f.heals && f.at == name {
		die()
	}
}

func (f *dyingFile) Truncate(n int64) error {
	f.step("truncate")
	return f.File.Truncate(n)
}

func (f *dyingFile) WriteAt(p []byte, off int64) (int, error) {
	f.step("write")
	if f.heals && f.at == "half" {
		_, _ = f.File.WriteAt(p[:len(p)/2], off)
		die()
	}
	n, err := f.File.WriteAt(p, off)
	f.step("written")
	return n, err
}

func (f *dyingFile) Sync() error {
	if !f.heals && failing {
		return errors.New("the disk fails")
	}
	f.step("sync")
	err := f.File.Sync()
	f.step("synced")
	return err
}

// healAndDie appends, and its process is killed at a step of the recovery. For the step "renamed",
// it is killed at the next record.
func healAndDie(dir, step string) {
	at := step
	l, err := Open(Config{Dir: dir, Sync: SyncInterval, Interval: 1 << 62, create: func(path string) (file, error) {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		heals := strings.HasSuffix(path, healing)
		if heals && step == "made" {
			die()
		}
		return &dyingFile{File: f, heals: heals, at: step}, err
	}})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	at += fmt.Sprint("-", l.recovery.Records)
	for i := range 40 {
		if i == 20 { // half of the records are on disk now
			l.forceSync()
		}
		name := at + "." + strconv.Itoa(i)
		if err := l.Append([]byte(name)); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		fmt.Println(name)
	}
	failing = true
	l.forceSync()
	if strings.HasPrefix(at, "renamed") {
		_ = l.Append([]byte(at + ".later"))
		fmt.Println(at + ".later")
		die()
	}
	fmt.Println("error: the process was not killed")
	os.Exit(1)
}

// TestKillInHealing kills a process at each step of a recovery. Afterwards every record whose Append
// returned is delivered once, and the log works.
func TestKillInHealing(t *testing.T) {
	for _, at := range []string{"made", "truncate", "write", "half", "written", "sync", "synced", "renamed"} {
		t.Run(at, func(t *testing.T) {
			dir := t.TempDir()
			want := map[string]bool{}
			for range 2 { // the second time in the folder of the first
				cmd := exec.Command(os.Args[0])
				cmd.Env = append(os.Environ(), "SPOOL_TEST_HEAL="+at, "SPOOL_TEST_HEAL_DIR="+dir)
				out, err := cmd.Output()
				if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL || strings.Contains(string(out), "error") {
					t.Fatalf("the healing process: %v %s, want SIGKILL", err, out)
				}
				names := strings.Fields(string(out))
				if len(names) < 40 {
					t.Fatalf("%d records are acknowledged, want at least 40", len(names))
				}
				for _, name := range names {
					want[name] = true
				}
				l := open(t, Config{Dir: dir})
				recs, _ := drain(t, l, 10)
				found := map[string]bool{}
				for _, rec := range recs {
					if found[rec] || !want[rec] {
						t.Errorf("%s was delivered twice, or never acknowledged", rec)
					}
					found[rec] = true
				}
				if len(found) != len(want) || l.recovery.DamagedBytes != 0 {
					t.Errorf("%d records are delivered, want %d; recovery %+v", len(found), len(want), l.recovery)
				}
				after := fmt.Sprint("after ", len(want))
				if err := l.Append([]byte(after)); err != nil {
					t.Error(err)
				}
				want[after] = true
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
