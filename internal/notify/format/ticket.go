package format

import "regexp"

// ticketID matches valid ids of tickets. The id is stored and used in URLs, so an answer with any
// other id is refused.
var ticketID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,100}$`)

// noTicket is the error for an answer with an invalid id.
const noTicket = "the answer names an invalid ticket"

// missing is the HTTP status Not Found (RFC 9110).
const missing = 404

// What a ticketing channel does when a fault ends.
const (
	OnResolveClose   = "resolve"
	OnResolveComment = "comment"
)

// ticketSystem is a ticketing system. Each method returns the outcome of its last call. find returns "" if
// no ticket is open for the fault.
type ticketSystem interface {
	find(m Message) (ticket string, out Outcome)
	create(m Message) (ticket string, out Outcome)
	comment(ticket string, m Message) Outcome
	resolve(ticket string, m Message) Outcome
}

// handle keeps one ticket for each fault. The first message opens the ticket, further messages are
// comments, and the end of the fault resolves it or adds a comment. If no ticket is stored, handle
// searches for one, because a process may have stopped after it opened the ticket and before it
// stored the id.
func handle(d ticketSystem, c Channel, m Message) Outcome {
	ticket := c.Ticket
	if ticket == "" {
		var out Outcome
		if ticket, out = d.find(m); out.Error != "" {
			return out
		}
		if ticket != "" && !ticketID.MatchString(ticket) {
			return out.refuse(noTicket)
		}
		if ticket == "" && m.Status == Resolved {
			out.Response = "there is no open ticket"
			return out
		}
	}
	if m.Status == Resolved {
		return finish(d, c, ticket, m)
	}
	var out Outcome
	if ticket != "" {
		out = d.comment(ticket, m)
	}
	if ticket == "" || out.Status == missing { // somebody may have deleted the ticket
		if ticket, out = d.create(m); out.Error == "" && !ticketID.MatchString(ticket) {
			return out.refuse(noTicket)
		}
	}
	if out.Error == "" {
		out.Ticket = ticket
	}
	return out
}

// finish resolves a ticket, or adds a comment, when the fault ends.
func finish(d ticketSystem, c Channel, ticket string, m Message) Outcome {
	out := Outcome{}
	if c.text("on_resolve") == OnResolveComment {
		if out = d.comment(ticket, m); out.Error == "" {
			out.Ticket = ticket
		}
	} else {
		out = d.resolve(ticket, m)
	}
	if out.Status == missing {
		return Outcome{Status: out.Status, Response: "the ticket was removed"}
	}
	return out
}

// ticketType returns the type of a ticketing system. settings are those that only this type has.
func ticketType(name string, settings []Setting, open func(x exchange) ticketSystem) Type {
	return Type{
		Name: name, Secrets: []string{Password, Username, AccessToken, ClientID, ClientSecret}, Lasting: true,
		Settings: append(settings,
			Setting{Name: "on_resolve", Kind: kindChoice, Values: []string{OnResolveClose, OnResolveComment}},
			Setting{Name: "token_url", Kind: kindText, With: ClientID}, Setting{Name: "scope", Kind: kindText},
			Setting{Name: "client_auth", Kind: kindChoice, Values: clientAuth()},
		),
		Credentials: [][]string{{Username, Password}, {AccessToken}, {ClientID, ClientSecret}},
		Send:        func(call Call, c Channel, m Message) Outcome { return handle(open(exchange{c, call}), c, m) },
	}
}
