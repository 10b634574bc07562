package e2e

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// mailServer receives mail over SMTP (RFC 5321), without TLS, and stores it.
type mailServer struct {
	addr string

	mu   sync.Mutex
	full bool // it refuses mail
	mail []string
}

func newMailServer(t *testing.T) *mailServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &mailServer{addr: l.Addr().String()}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer c.Close()
				m.serve(c)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		running.Wait()
	})
	return m
}

// serve speaks with one client.
func (m *mailServer) serve(c net.Conn) {
	say := func(line string) { fmt.Fprintf(c, "%s\r\n", line) }
	say("220 mail.example.com")
	var text strings.Builder
	inData := false
	for lines := bufio.NewScanner(c); lines.Scan(); {
		line := lines.Text()
		verb, _, _ := strings.Cut(strings.ToUpper(line), " ")
		switch {
		case inData && line == ".":
			inData = false
			m.mu.Lock()
			m.mail = append(m.mail, text.String())
			m.mu.Unlock()
			say("250 2.0.0 queued as E2E-1")
		case inData:
			text.WriteString(line + "\n")
		case verb == "DATA":
			inData = true
			say("354 go on")
		case verb == "RCPT" && m.refuses():
			say("452 4.2.2 the mailbox is full")
		case verb == "QUIT":
			say("221 bye")
			return
		default:
			say("250 ok")
		}
	}
}

func (m *mailServer) refuses() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.full
}

// refuse makes the server refuse mail, or accept it again.
func (m *mailServer) refuse(full bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.full = full
}

// channelTested adds a mail channel, sees a test refused and one arrive, and reads the deliveries.
func channelTested(p *tab, d deployment) {
	server := newMailServer(p.t)
	p.visit("/notifications")
	p.shows("No channels yet")
	p.accessible("no channels")
	p.button("New channel")
	p.fill("channel-name", "on call")
	p.fill("endpoint", "smtp://"+server.addr)
	p.fill("setting-from", "gatehouse@example.com")
	p.pick("Encryption", "None")
	p.addTag("Recipients", "ops@example.com")
	p.dialog("the form of a channel")
	p.button("Create channel")
	p.wait("the channel", `location.search.includes("channel=1") && document.querySelector("section[aria-label='on call']") && !document.querySelector("[role=dialog]")`)
	server.refuse(true)
	p.button("Send test message")
	p.shows("The test message was not accepted.")
	p.shows("the mailbox is full")
	p.accessible("a test that was refused")
	server.refuse(false)
	p.button("Send test message")
	p.shows("The test message was accepted.")
	p.shows("E2E-1")
	p.accessible("a test that arrived")
	server.mu.Lock()
	if len(server.mail) != 1 || !strings.Contains(server.mail[0], "ops@example.com") {
		p.t.Errorf("the mail server has %q, want one mail to ops@example.com", server.mail)
	}
	server.mu.Unlock()
	p.button("Disable")
	p.wait("that it is off", `[...document.querySelectorAll("tbody tr")].some(r => /on call/.test(r.innerText) && /Disabled/.test(r.innerText))`)
	p.button("Enable")
	p.wait("that it is on", `[...document.querySelectorAll("tbody tr")].some(r => /on call/.test(r.innerText) && /Enabled/.test(r.innerText))`)
	p.button("Edit")
	p.wait("the form with what it is", `document.querySelector("[name=channel-name]")?.value === "on call" && document.querySelector("[name=setting-from]")?.value === "gatehouse@example.com"`)
	p.fill("setting-from", "alerts@example.com")
	p.dialog("the form of a channel that changes")
	p.button("Save")
	p.wait("the change", `!document.querySelector("[role=dialog]") && [...document.querySelectorAll("dd")].some(e => e.textContent === "alerts@example.com")`)

	p.button("Edit")
	p.toggle("Hold messages in quiet hours")
	p.wait("when they are", `document.querySelector("[name=quiet-from]")?.value === "22:00" && document.querySelector("[name=quiet-to]")?.value === "07:00"`)
	p.pick("Days on which they begin", "Saturday")
	p.fill("digest", "5")
	p.dialog("the form of a channel with quiet hours")
	p.button("Save")
	p.wait("the quiet hours", `!document.querySelector("[role=dialog]") && [...document.querySelectorAll("dd")].some(e => /^22:00 to 07:00 \(.+\), Saturday\./.test(e.textContent))`)
	p.shows("one digest of what follows within 5 minutes")
	p.accessible("a channel with quiet hours")

	p.press("section[aria-label='on call'] a[href^='/notifications/deliveries']")
	p.wait("its deliveries", `location.pathname === "/notifications/deliveries" && location.search.includes("channel_id=1") && document.querySelectorAll("tbody tr").length === 2 && `+settled)
	p.accessible("deliveries")
	p.press("tbody .gh-link")
	p.dialog("a delivery")
	p.press("[role=dialog] button[aria-label=Close]")
	p.wait("the end of the dialog", `!document.querySelector("[role=dialog]")`)
	p.visit("/notifications/deliveries?status=sent")
	p.wait("the one that arrived", `document.querySelectorAll("tbody tr").length === 1`)
	p.visit("/notifications/deliveries?status=dlq")
	p.shows("Nothing matches")
	nightGathered(p, d, server)
	for _, name := range hostile {
		p.post("/api/v1/notifications/channels", fmt.Sprintf(`{"name": %q, "type": "webhook", "endpoint": %q, "credential": {"hmac_secret": "a-long-random-key"}}`, name, "http://127.0.0.1:9/"+strings.Repeat("W", 300)))
	}
	p.looked("/notifications", "/notifications?channel=2", "/notifications?channel=4", "/notifications/deliveries", "/notifications?channel=999999")
	p.visit("/notifications?channel=2")
	p.button("Delete")
	p.dialog("the question before a channel is deleted")
	p.button("Delete")
	p.wait("its end", `!document.querySelector("[role=dialog]") && !location.search.includes("channel=") && ![...document.querySelectorAll("tbody button")].some(e => e.textContent.includes("onerror"))`)
}

// nightGathered: what happens in quiet hours arrives after them in one mail.
func nightGathered(p *tab, d deployment, server *mailServer) {
	now := time.Now().UTC()
	p.request("PUT", "/api/v1/notifications/channels/1", fmt.Sprintf(`{"quiet_hours": {"from": %q, "to": %q}}`, now.Add(-2*time.Hour).Format("15:04"), now.Add(12*time.Hour).Format("15:04")))
	for _, name := range []string{"carla", "dora"} {
		for range 10 { // somebody guesses at a password
			res, err := http.Post(d.console+"/api/v1/auth/login", "application/json", strings.NewReader(fmt.Sprintf(`{"username": %q, "password": "a wrong guess"}`, name)))
			if err != nil {
				p.t.Fatal(err)
			}
			res.Body.Close()
		}
	}
	rows := func(n int, state string) string {
		return fmt.Sprintf(`[...document.querySelectorAll("tbody tr")].filter(r => r.innerText.includes(%q)).length >= %d`, state, n)
	}
	p.visit("/notifications/deliveries?channel_id=1&status=held")
	p.wait("what is held", rows(2, "Held"))
	p.accessible("deliveries that are held")
	p.request("PUT", "/api/v1/notifications/channels/1", `{"quiet_hours": null, "digest_window_seconds": 0}`)
	p.visit("/notifications/deliveries?channel_id=1&alert=digest")
	p.wait("the digest", rows(1, "Sent"))
	p.press("tbody .gh-link")
	p.wait("how much it sums up", `/This digest sums up \d+ messages/.test(document.querySelector("[role=dialog]")?.innerText)`)
	p.dialog("a digest")
	p.press("[role=dialog] a[href*='digest_id=']")
	p.wait("its messages", `location.search.includes("digest_id=") && `+rows(2, "In a digest"))
	p.press("tbody .gh-link")
	p.wait("where it went", `/This message went out in the digest \d+/.test(document.querySelector("[role=dialog]")?.innerText)`)
	p.press("[role=dialog] button[aria-label=Close]")
	server.mu.Lock()
	defer server.mu.Unlock()
	if last := server.mail[len(server.mail)-1]; !strings.Contains(last, "messages from") || !strings.Contains(last, "carla") || !strings.Contains(last, "dora") {
		p.t.Errorf("the digest is %q, want the failed sign-ins of carla and dora", last)
	}
}

// telemetrySet connects a license server, sends it a report and sees what it allows.
func telemetrySet(p *tab) {
	var mu sync.Mutex
	var report string
	down := true
	license := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if down {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if r.Method == http.MethodPost {
			var b strings.Builder
			_, _ = bufio.NewReader(r.Body).WriteTo(&b)
			report = b.String()
		}
		fmt.Fprint(w, `{"customer_id": "acme", "tier": "enterprise", "subscription_status": "active"}`)
	}))
	p.t.Cleanup(license.Close)
	p.visit("/telemetry")
	p.shows("Nothing is sent")
	p.shows("community")
	p.accessible("telemetry without a configuration")
	p.button("Connect a license server")
	p.fill("license-url", license.URL)
	p.fill("license-key", "a-key-of-24-random-bytes-or-more")
	p.toggle("Send reports")
	p.dialog("the form of the license server")
	p.button("Save")
	p.wait("that it is on", `!document.querySelector("[role=dialog]") && document.querySelector(".gh-head .gh-status")?.innerText === "Enabled"`)
	p.hides("the key", "a-key-of-24-random")
	p.button("Send now")
	p.wait("that it did not arrive", `document.querySelector(".gh-main [role=alert]") && [...document.querySelectorAll("tbody tr")].some(r => /Failed/.test(r.innerText))`)
	p.accessible("a report that did not arrive")
	mu.Lock()
	down = false
	mu.Unlock()
	p.button("Try again")
	p.wait("that it arrived", `[...document.querySelectorAll("tbody tr")].some(r => /Arrived/.test(r.innerText))`)
	preview := p.read(`document.querySelector("pre[aria-label='As it is sent']").textContent`)
	mu.Lock()
	if report == "" || !strings.Contains(preview, `"current_period"`) {
		p.t.Errorf("the license server has the report %q, and the preview is %q", report, preview)
	}
	mu.Unlock()
	p.looked("/telemetry")
	// Later steps do not use the license server.
	p.request("PUT", "/api/v1/telemetry/config", `{"enabled": false, "business_admin_url": "", "api_key": null}`)
}
