package format

import "regexp"

// ticketID is the id of a ticket. It is stored and goes into URLs, so that an answer with
// anything else names none.
var ticketID = regexp.MustCompile(`^[A-Za-z0-9_-]{1,100}$`)

// noTicket is why an answer with an odd id is a failure.
const noTicket = "the answer names an invalid ticket"

// missing is the status of what does not exist (RFC 9110).
const missing = 404

// What a ticketing channel does at the end of a fault.
const (
	OnResolveClose   = "resolve"
	OnResolveComment = "comment"
)

// desk is a ticketing system. A method gives the outcome of its last call; find gives ""
// where no ticket of the fault is open.
type desk interface {
	find(m Message) (ticket string, out Outcome)
	create(m Message) (ticket string, out Outcome)
	comment(ticket string, m Message) Outcome
	resolve(ticket string, m Message) Outcome
}

// handle keeps one ticket for each fault: its first message opens the ticket, each other
// one is a comment, and the end resolves it. A ticket that is not remembered is looked
// for, because this process may have ended between opening it and writing that down.
func handle(d desk, c Channel, m Message) Outcome {
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
	if ticket == "" || out.Status == missing { // somebody may have removed it
		if ticket, out = d.create(m); out.Error == "" && !ticketID.MatchString(ticket) {
			return out.refuse(noTicket)
		}
	}
	if out.Error == "" {
		out.Ticket = ticket
	}
	return out
}

// finish tells a ticket of the end.
func finish(d desk, c Channel, ticket string, m Message) Outcome {
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

// ticketType is a type of ticketing system. settings are those that the others do not have.
func ticketType(name string, settings []Setting, open func(x exchange) desk) Type {
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
