package integration

import (
	"encoding/json"
	"net/netip"
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/audit"
	"github.com/gatehouse-dev/gatehouse/internal/audit/tail"
	"github.com/gatehouse-dev/gatehouse/internal/fault"
)

// The severities of entries in CEF.
const (
	cefLow    = "3"
	cefMedium = "6"
)

// The longest values in a CEF line, in bytes before escaping. With these limits a message is
// shorter than maxMessage.
const (
	longValue  = 1000
	shortValue = 200
)

// cef builds a line of ArcSight's Common Event Format.
type cef struct{ strings.Builder }

// head writes the header: the class of the event, its name and its severity.
func (c *cef) head(class, name, severity string) {
	escape := strings.NewReplacer(`\`, `\\`, `|`, `\|`, "\r", " ", "\n", " ")
	c.WriteString("CEF:0|gatehouse|gatehouse|1|" + escape.Replace(cut(class, shortValue)) + "|" + escape.Replace(cut(name, shortValue)) + "|" + severity + "|")
}

// add adds a member to the extension. It skips empty values.
func (c *cef) add(name, value string) { c.addLong(name, cut(value, shortValue)) }

func (c *cef) addLong(name, value string) {
	if value == "" {
		return
	}
	escape := strings.NewReplacer(`\`, `\\`, `=`, `\=`, "\r", `\r`, "\n", `\n`)
	c.WriteString(name + "=" + escape.Replace(cut(value, longValue)) + " ")
}

// custom adds a member for which CEF has no name.
func (c *cef) custom(name, label, value string) {
	if value != "" {
		c.add(name+"Label", label)
		c.add(name, value)
	}
}

// address adds the IP address of a request. It skips text that is not an address.
func (c *cef) address(text string) {
	a, err := netip.ParseAddr(text)
	switch {
	case err != nil:
	case a.Unmap().Is4():
		c.add("src", a.Unmap().String())
	default:
		c.custom("c6a2", "Source IPv6 Address", a.String())
	}
}

// cut shortens text to a number of bytes of valid UTF-8.
func cut(text string, most int) string {
	if len(text) > most {
		text = text[:most]
	}
	return strings.ToValidUTF8(text, "")
}

// cefLine returns the main facts of an entry as a CEF line.
func cefLine(l tail.Line) ([]byte, error) {
	c := &cef{}
	switch {
	case l.Decision != nil:
		var d audit.Decision
		if err := json.Unmarshal(l.Decision, &d); err != nil {
			return nil, fault.Wrap(err, "read a decision of the audit")
		}
		c.decision(&d)
	case l.Event != nil:
		c.event(l.Event)
	default:
		c.head("entry", "Entry without content", cefLow)
	}
	c.add("rt", strconv.FormatInt(l.At.UnixMilli(), 10))
	c.custom("cs1", "chain", l.Chain)
	c.custom("cn1", "position", strconv.FormatInt(l.Position, 10))
	c.custom("cs2", "hash", l.Hash)
	c.custom("cs3", "previousHash", l.PreviousHash)
	c.custom("cs4", "environment", string(l.Environment))
	c.custom("cs5", "tenant", l.Tenant)
	return []byte(strings.TrimSuffix(c.String(), " ")), nil
}

func (c *cef) decision(d *audit.Decision) {
	severity := cefLow
	if d.Decision == audit.Deny {
		severity = cefMedium
	}
	c.head("decision", "Decision "+d.Decision, severity)
	c.add("externalId", d.DecisionID)
	c.add("cat", "decision")
	c.add("outcome", d.Decision)
	c.add("act", d.Action)
	c.add("suid", d.User.ID)
	c.add("suser", d.User.Email)
	c.add("request", d.Resource.Path)
	c.addLong("reason", d.Reason)
	if d.PolicyName != nil {
		c.custom("cs6", "policy", *d.PolicyName)
	}
	c.address(d.IPAddress)
}

func (c *cef) event(e *audit.Event) {
	c.head(e.Type, e.Type, cefLow)
	c.add("externalId", strconv.FormatInt(e.ID, 10))
	c.add("cat", "audit")
	c.add("act", e.Type)
	c.add("suid", e.ActorID)
	c.add("suser", e.ActorName)
	c.addLong("msg", strings.TrimSpace(e.Object+" "+e.ObjectID+" "+e.ObjectName))
	c.address(e.IPAddress)
}
