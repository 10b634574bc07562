package enforce

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/app/apptest"
	"github.com/gatehouse-dev/gatehouse/internal/errtest"
	"github.com/gatehouse-dev/gatehouse/internal/fulltest"
)

// orderText is what the servers serve below /orders.
const orderText = "the secret of order 17"

// startServer starts a server and returns the address that it prints.
func startServer(t *testing.T, cmd *exec.Cmd, address *regexp.Regexp) string {
	t.Helper()
	out, in, err := os.Pipe()
	errtest.Must(t, err)
	cmd.Stdout, cmd.Stderr = in, in
	errtest.Must(t, cmd.Start())
	in.Close()
	done := make(chan struct{})
	found := make(chan string, 1)
	var output strings.Builder
	go func() {
		defer close(done)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if m := address.FindStringSubmatch(lines.Text()); m != nil {
				select {
				case found <- m[1]:
				default:
				}
			}
			fmt.Fprintln(&output, lines.Text())
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		<-done
		out.Close()
	})
	select {
	case a := <-found:
		return "http://" + a
	case <-done:
		t.Fatalf("%s ended before it named its address: %s", cmd.Path, output.String())
	case <-time.After(2 * time.Minute):
		t.Fatalf("%s did not name its address within 2 minutes", cmd.Path)
	}
	return ""
}

const expressVersion = "4.21.2"

// startExpress starts an Express application with default routing, from the npm registry.
func startExpress(t *testing.T) string {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		apptest.SkipMissing(t, "node is not installed")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	dir := filepath.Join(cache, "gatehouse-test", "express-"+expressVersion)
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "express", "package.json")); err != nil {
		errtest.Must(t, os.MkdirAll(dir, 0o755))
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		if out, err := exec.CommandContext(ctx, "npm", "install", "--prefix", dir, "--no-audit", "--no-fund", "--ignore-scripts", "express@"+expressVersion).CombinedOutput(); err != nil {
			apptest.SkipMissing(t, fmt.Sprintf("Express cannot be installed: %v: %s", err, out))
		}
	}
	script := filepath.Join(dir, "server.js")
	source := `const app = require("express")();
app.get("/orders/:id", (q, r) => r.send("` + orderText + `"));
app.get("/health", (q, r) => r.send("fine"));
const s = app.listen(0, "127.0.0.1", () => console.log("at 127.0.0.1:" + s.address().port));`
	errtest.Must(t, os.WriteFile(script, []byte(source), 0o600))
	return startServer(t, exec.Command(node, script), regexp.MustCompile(`at (127\.0\.0\.1:\d+)`))
}

// startJetty starts a Jetty that serves files, as Debian packages it.
func startJetty(t *testing.T) string {
	t.Helper()
	java, err := exec.LookPath("java")
	if err != nil {
		apptest.SkipMissing(t, "java is not installed")
	}
	var jars []string
	for _, name := range []string{"jetty9-server", "jetty9-http", "jetty9-io", "jetty9-util", "jetty9-xml", "servlet-api"} {
		jar := "/usr/share/java/" + name + ".jar"
		if _, err := os.Stat(jar); err != nil {
			apptest.SkipMissing(t, "Debian's libjetty9-java is not installed")
		}
		jars = append(jars, jar)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"orders/17": orderText, "health": "fine"} {
		file := filepath.Join(dir, "files", filepath.FromSlash(name))
		errtest.Must(t, os.MkdirAll(filepath.Dir(file), 0o755))
		errtest.Must(t, os.WriteFile(file, []byte(text), 0o600))
	}
	config := filepath.Join(dir, "jetty.xml")
	text := `<?xml version="1.0"?>
<!DOCTYPE Configure PUBLIC "-//Jetty//Configure//EN" "https://www.eclipse.org/jetty/configure_9_3.dtd">
<Configure id="server" class="org.eclipse.jetty.server.Server">
  <Call name="addConnector"><Arg><New class="org.eclipse.jetty.server.ServerConnector">
    <Arg name="server"><Ref refid="server"/></Arg><Set name="host">127.0.0.1</Set><Set name="port">0</Set>
  </New></Arg></Call>
  <Set name="handler"><New class="org.eclipse.jetty.server.handler.ResourceHandler"><Set name="resourceBase">` + filepath.Join(dir, "files") + `</Set></New></Set>
</Configure>`
	errtest.Must(t, os.WriteFile(config, []byte(text), 0o600))
	return startServer(t, exec.Command(java, "-Xmx128m", "-cp", strings.Join(jars, ":"), "org.eclipse.jetty.xml.XmlConfiguration", config),
		regexp.MustCompile(`Started ServerConnector.*\{(127\.0\.0\.1:\d+)\}`))
}

// startDjango starts a Django application with an optional final slash, as Debian packages it.
func startDjango(t *testing.T) string {
	t.Helper()
	const python = "/usr/bin/python3" // Debian's own, which has Debian's modules
	if exec.Command(python, "-c", "import django").Run() != nil {
		apptest.SkipMissing(t, "Debian's python3-django is not installed")
	}
	return startServer(t, exec.Command(python, "-u", "-c", `
from wsgiref.simple_server import make_server
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse
from django.urls import re_path
settings.configure(DEBUG=False, SECRET_KEY="x", ALLOWED_HOSTS=["*"], ROOT_URLCONF=__name__, MIDDLEWARE=["django.middleware.common.CommonMiddleware"])
urlpatterns = [
    re_path(r"^orders/(?P<id>\w+)/?$", lambda request, id: HttpResponse("`+orderText+`")),
    re_path(r"^health$", lambda request: HttpResponse("fine")),
]
server = make_server("127.0.0.1", 0, get_wsgi_application())
print("at 127.0.0.1:%d" % server.server_port)
server.serve_forever()
`), regexp.MustCompile(`at (127\.0\.0\.1:\d+)`))
}

// startRails starts the router of Rails behind Puma, as Debian packages both.
func startRails(t *testing.T) string {
	t.Helper()
	ruby, err := exec.LookPath("ruby")
	if err != nil || exec.Command(ruby, "-e", `require "action_controller"; require "puma"`).Run() != nil {
		apptest.SkipMissing(t, "Debian's ruby-actionpack and puma are not installed")
	}
	return startServer(t, exec.Command(ruby, "-e", `
require "action_controller"
require "puma"
require "puma/server"
routes = ActionDispatch::Routing::RouteSet.new
routes.draw do
  get "/orders/:id", to: ->(env) { [200, {"Content-Type" => "text/plain"}, ["`+orderText+`"]] }
  get "/health", to: ->(env) { [200, {"Content-Type" => "text/plain"}, ["fine"]] }
end
server = Puma::Server.new(routes)
port = server.add_tcp_listener("127.0.0.1", 0).addr[1]
$stdout.sync = true
puts "at 127.0.0.1:#{port}"
server.run.join
`), regexp.MustCompile(`at (127\.0\.0\.1:\d+)`))
}

// startWindows starts a server with the case, separator and final-dot rules of IIS on Windows.
func startWindows(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		file, _, _ := strings.Cut(r.RequestURI, "?")
		for _, step := range readings["IIS"] {
			file = step(file)
		}
		switch {
		case strings.HasPrefix(file, "/orders/"):
			_, _ = io.WriteString(w, orderText)
		case file == "/health":
			_, _ = io.WriteString(w, "fine")
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// For real servers that fold paths, each spelling is first tried on the server itself. A spelling
// that serves an order there must not serve one through the bouncer.
func TestServersThatFoldPaths(t *testing.T) {
	t.Parallel()
	fulltest.Only(t)
	if testing.Short() {
		t.Skip("real servers take their time to start")
	}
	for name, server := range map[string]struct {
		start func(*testing.T) string
		folds string // a spelling that this server does serve
	}{
		"Express": {startExpress, "/ORDERS/17"}, "Jetty": {startJetty, "/orders;x/17"}, "Django": {startDjango, "/orders/17/"}, "Rails": {startRails, "/orders/17.json"},
		"Windows": {startWindows, "/Orders./17"},
	} {
		t.Run(name, func(t *testing.T) {
			app := server.start(t)
			p := newPlane(t)
			p.discard = true
			guardOrders(t, p, "")
			b := start(t, p, app, nil).at(t, 1)
			targets := []string{
				"/orders/17", "/ORDERS/17", "/Orders/17/", "/Orders./17", "/orders;x/17", "/orders;x=1/17;y", "/orders%3bx/17", "/orders%3Bx/17", "/orders./17", "/orders%20/17",
				"/%256frders/17", "/%6frders/17", "//orders/17", "/x/../orders/17", "/orders/17.", "/orders/17;a", "/orders%252f17", "/%EF%BD%8Frders/17",
				"/./orders/17", "/x/..;/orders/17", "/..;/orders/17", "/.;/orders/17", "/;x/orders/17", "/x/%2e%2e/orders/17", "/x/%2e%2e;/orders/17", "/x/..%2forders/17", "/orders/%2e%2e/orders/17",
				"/orders%2f17", "/orders%5c17", "/orders%00/17", "/orders/17%00", "/orders%09/17", "/%20orders/17", "/orders%c0%af17", "/%c1%afrders/17", "/orders%u002f17", "/orders;/17", "/orders/;/17",
				"/orders/17/", "/orders/17//", "/orders/17.json", "/orders/x/../17", "/%4fRDERS/17", "/order%C5%BF/17", "http://a.test/orders/17", "http://a.test/ORDERS;x/17",
			}
			rng := rand.New(rand.NewPCG(3, 4))
			for range 300 {
				targets = append(targets, inASCII(spelling(rng)))
			}
			served := map[string]bool{}
			for _, target := range targets {
				if strings.Contains(fetchTarget(t, app, target), orderText) {
					served[target] = true
				}
				if body := fetchTarget(t, b.url, target); strings.Contains(body, orderText) {
					t.Errorf("GET %s through the bouncer = %q, want no order", target, body)
				}
			}
			if !served[server.folds] || !served["/orders/17"] {
				t.Errorf("the server itself serves an order for %v, want also for %s", served, server.folds)
			}
			if body := fetchTarget(t, b.url, "/health"); !strings.Contains(body, "fine") {
				t.Errorf("GET /health = %q, want fine", body)
			}
		})
	}
}

// fetchTarget requests a target without changes, and returns the body of the answer.
func fetchTarget(t *testing.T, base, target string) string {
	t.Helper()
	out := sendRaw(t, base, "GET "+target+" HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(out)), nil)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return string(body)
}
