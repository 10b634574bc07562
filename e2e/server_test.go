// Package e2e tests the console in a real browser, against a real server.
package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const password = "correct-horse-battery-9"

// deployment is `gatehouse dev` in a process of its own: a server, two bouncers
// and the demo application.
type deployment struct {
	console    string // origin of the console and the API
	sandbox    string // origin of the bouncer that enforces
	production string // origin of the bouncer that observes
	link       string // signs in once, as the server printed it
	git        *gitHost
	dns        *dns
}

// chromium returns the path of the browser. Without a browser it skips the test, or fails it if
// GATEHOUSE_TEST_REQUIRE is set, as in CI.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{os.Getenv("CHROMIUM"), "chromium", "chromium-browser", "google-chrome"} {
		if name == "" {
			continue
		}
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	if os.Getenv("GATEHOUSE_TEST_REQUIRE") != "" {
		t.Fatal("no Chromium: install it, or set CHROMIUM to its path")
	}
	t.Skip("no Chromium: install it, or set CHROMIUM to its path")
	return ""
}

// start runs the demonstration on free ports, and waits until it serves.
func start(t *testing.T) deployment {
	t.Helper()
	dir := t.TempDir()
	ports := freePorts(t, 4)
	at := func(i int) string { return "127.0.0.1:" + strconv.Itoa(ports[i]) }
	host, names := newGitHost(t), newDNS(t)
	log := launch(t, exec.Command(build(t), "dev"), dir, append(host.env(),
		"GATEHOUSE_ADMIN_PASSWORD="+password, "GATEHOUSE_RATE_LIMIT=none", "GATEHOUSE_DECISION_RATE_LIMIT=none",
		"GATEHOUSE_LISTEN="+at(0), "GATEHOUSE_DATA_DIR="+filepath.Join(dir, "data"),
		"GATEHOUSE_DNS_SERVER="+names.addr, "GATEHOUSE_DEV_SANDBOX="+at(1), "GATEHOUSE_DEV_PRODUCTION="+at(2), "GATEHOUSE_DEV_APPLICATION="+at(3)))
	d := deployment{console: "http://" + at(0), sandbox: "http://" + at(1), production: "http://" + at(2), git: host, dns: names}
	// Once the bouncer denies a visitor, it has the control of the demo.
	eventually(t, "the bouncer enforces", func() bool {
		status, _ := d.visit(d.sandbox, "/employees/1", "eve", "visitor")
		return status == http.StatusForbidden
	})
	link := regexp.MustCompile(regexp.QuoteMeta(d.console) + `/login#link=\S+\n`)
	eventually(t, "the link is printed", func() bool {
		d.link = strings.TrimSpace(log.find(link))
		return d.link != ""
	})
	return d
}

// folder is where the program is built.
var folder string

func TestMain(m *testing.M) {
	var err error
	if folder, err = os.MkdirTemp("", "gatehouse-e2e"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status := m.Run()
	_ = os.RemoveAll(folder)
	os.Exit(status)
}

// built builds the program once for all tests.
var built = sync.OnceValues(func() (string, error) {
	binary := filepath.Join(folder, "gatehouse")
	build := exec.Command("go", "build", "-o", binary, "./cmd/gatehouse")
	build.Dir = ".."
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return binary, nil
})

// build returns the path of the program.
func build(t *testing.T) string {
	t.Helper()
	binary, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

// launch starts a program that runs until the test ends. It has a process group of its own, so
// that the children of a shell end, too.
func launch(t *testing.T, run *exec.Cmd, dir string, env []string) *output {
	t.Helper()
	run.Dir = dir
	run.Env = append(os.Environ(), env...)
	run.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	log := new(output)
	run.Stdout, run.Stderr = log, log
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- run.Wait() }()
	t.Cleanup(func() {
		_ = syscall.Kill(-run.Process.Pid, syscall.SIGINT)
		select {
		case <-ended:
		case <-time.After(30 * time.Second):
			_ = syscall.Kill(-run.Process.Pid, syscall.SIGKILL)
			<-ended
		}
		if t.Failed() {
			t.Logf("the output of %s:\n%s", run, log)
		}
	})
	return log
}

// output collects what a program writes.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func (o *output) find(pattern *regexp.Regexp) string { return pattern.FindString(o.String()) }

// visit sends a request to a bouncer as a user of a group, and returns the status and the body.
func (d deployment) visit(bouncer, path, user, group string) (int, string) {
	req, err := http.NewRequest(http.MethodGet, bouncer+path, nil)
	if err != nil {
		return 0, err.Error()
	}
	req.Header.Set("X-Auth-Request-User", user)
	req.Header.Set("X-Auth-Request-Groups", group)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	body, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(body)
}

// send makes a request without the browser, with one header and a JSON body unless it is empty,
// and returns the status of the answer.
func send(t *testing.T, method, url, header, value, body string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(header, value)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	return res.StatusCode
}

// eventually waits until a condition holds, for a minute at most.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			t.Fatalf("waiting until %s: %v", what, ctx.Err())
		case <-tick.C:
		}
	}
}

// taken are the ports that freePorts has returned.
var taken = struct {
	sync.Mutex
	ports map[int]bool
}{ports: map[int]bool{}}

// freePorts returns ports that are free, and none of them twice.
func freePorts(t *testing.T, n int) []int {
	t.Helper()
	taken.Lock()
	defer taken.Unlock()
	var ports []int
	for len(ports) < n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if port := l.Addr().(*net.TCPAddr).Port; !taken.ports[port] {
			taken.ports[port] = true
			ports = append(ports, port)
		}
	}
	return ports
}
