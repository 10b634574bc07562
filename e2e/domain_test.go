package e2e

import (
	"encoding/binary"
	"net"
	"strings"
	"sync"
	"testing"
)

// dns is a DNS server over UDP with the records that a test sets.
type dns struct {
	addr string

	mu      sync.Mutex
	records map[string]string // "CNAME name" and "TXT name"
}

func newDNS(t *testing.T) *dns {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &dns{addr: conn.LocalAddr().String(), records: map[string]string{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if answer := d.answer(buf[:n]); answer != nil {
				_, _ = conn.WriteTo(answer, from)
			}
		}
	}()
	t.Cleanup(func() {
		conn.Close()
		<-done
	})
	return d
}

// set sets the record of a name and type, CNAME or TXT.
func (d *dns) set(kind, name, value string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.records[kind+" "+strings.TrimSuffix(name, ".")] = value
}

// answer returns the answer to one question (RFC 1035, section 4), or nil if it is none.
func (d *dns) answer(message []byte) []byte {
	const header, typeCNAME, typeTXT = 12, 5, 16
	var labels []string
	at := header
	for at < len(message) && message[at] != 0 {
		end := at + 1 + int(message[at])
		if end >= len(message) {
			return nil
		}
		labels = append(labels, strings.ToLower(string(message[at+1:end])))
		at = end
	}
	if at+5 > len(message) {
		return nil
	}
	name, question := strings.Join(labels, "."), message[header:at+5]
	kind, rtype, data := "CNAME", uint16(typeCNAME), []byte(nil)
	if binary.BigEndian.Uint16(message[at+1:]) == typeTXT {
		kind, rtype = "TXT", typeTXT
	}
	d.mu.Lock()
	value := d.records[kind+" "+name]
	d.mu.Unlock()
	parts := []string{value}
	if kind == "CNAME" {
		parts = strings.Split(strings.TrimSuffix(value, "."), ".")
	}
	for _, part := range parts {
		data = append(append(data, byte(len(part))), part...)
	}
	if kind == "CNAME" {
		data = append(data, 0)
	}
	out := append([]byte{message[0], message[1], 0x85, 0x80, 0, 1, 0, 0, 0, 0, 0, 0}, question...)
	if value == "" {
		return out
	}
	out[7] = 1
	out = append(out, 0xc0, header)
	out = binary.BigEndian.AppendUint16(out, rtype)
	out = append(out, 0, 1, 0, 0, 0, 60)
	out = binary.BigEndian.AppendUint16(out, uint16(len(data)))
	return append(out, data...)
}

// domainVerified adds a domain, sees which records are missing, creates them and verifies the domain.
func domainVerified(p *tab, d deployment) {
	const name = "access.example.com"
	p.visit("/tenant/domains")
	p.button("Add domain")
	p.fill("domain", name)
	p.dialog("the form of a domain")
	p.press("[role=dialog] button[type=submit]")
	p.wait("the records", `document.querySelectorAll(".gh-command pre").length === 4`)
	p.accessible("the records of a domain")
	p.button("Check now")
	p.wait("that they are not there", `document.querySelector(".gh-main [role=alert]")`)
	p.accessible("the records that are not there")
	for _, kind := range []string{"CNAME", "TXT"} {
		field := func(what string) string {
			return p.read(`document.querySelector("pre[aria-label='` + kind + `: ` + what + `']").textContent`)
		}
		d.dns.set(kind, field("Name"), field("Value"))
	}
	p.button("Check now")
	p.shows(name + " is verified.")
	p.looked("/tenant/domains", "/tenant/domains?domain="+name)
	p.button("Remove")
	p.dialog("the question before a domain is removed")
	p.button("Remove")
	p.wait("its end", `!document.querySelector("[role=dialog]") && !document.body.innerText.includes(`+"`"+name+"`"+`)`)
}

// billChanged sets the address of the invoice and looks at what is used.
func billChanged(p *tab) {
	p.visit("/tenant/billing")
	p.shows("No billing address yet")
	p.button("Change address")
	p.fill("city", hostile[0])
	p.fill("country", "IE")
	p.fill("line1", "1 Main Street")
	p.dialog("the form of an address")
	p.press("[role=dialog] button[type=submit]")
	p.wait("the address", `!document.querySelector("[role=dialog]") && [...document.querySelectorAll("dd")].some(e => e.textContent.includes("onerror=alert(1)"))`)
	p.button("Change payment method")
	p.dialog("the form of a payment method")
	p.fill("payment-token", "tok_e2e_4242")
	p.press("[role=dialog] button[type=submit]")
	p.wait("that it is stored", `[...document.querySelectorAll("button")].some(b => b.textContent.trim() === "Remove payment method")`)
	p.hides("the payment method", "tok_e2e_4242")
	p.looked("/tenant/billing", "/tenant/usage", "/tenant/usage?granularity=hour", "/tenant/usage?start_date=2020-01-01&end_date=2020-01-02")
	p.visit("/tenant/usage")
	p.button("Show as table")
	p.wait("the table", `document.querySelector("table caption, section table")`)
	p.size(1440, 900)
}
