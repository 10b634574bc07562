package live

import (
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// gauge is a number that differs once something has moved that the administrative
// log does not tell of. It may also grow.
type gauge int

const (
	decisionsSandbox gauge = iota
	decisionsProduction
	revisionsSandbox
	revisionsProduction
	bouncersSandbox
	bouncersProduction
	replaysSandbox
	replaysProduction
	deploymentsAll
	notificationsSandbox
	notificationsProduction
	webhooksAll
	telemetryAll
	dataSourcesAll
	gauges // how many there are
)

// tells are the changes that the gauges stand for.
var tells = [gauges]Change{
	decisionsSandbox:        {Topic: Decisions, Environment: scope.Sandbox},
	decisionsProduction:     {Topic: Decisions, Environment: scope.Production},
	revisionsSandbox:        {Topic: Revisions, Environment: scope.Sandbox},
	revisionsProduction:     {Topic: Revisions, Environment: scope.Production},
	bouncersSandbox:         {Topic: Bouncers, Environment: scope.Sandbox},
	bouncersProduction:      {Topic: Bouncers, Environment: scope.Production},
	replaysSandbox:          {Topic: Replays, Environment: scope.Sandbox},
	replaysProduction:       {Topic: Replays, Environment: scope.Production},
	deploymentsAll:          {Topic: Deployments},
	notificationsSandbox:    {Topic: Notifications, Environment: scope.Sandbox},
	notificationsProduction: {Topic: Notifications, Environment: scope.Production},
	webhooksAll:             {Topic: Webhooks},
	telemetryAll:            {Topic: Telemetry},
	dataSourcesAll:          {Topic: DataSources},
}

// position is where a hub or a client stands: the last entry of the administrative
// log that it knows, and the gauges as it knows them.
type position struct {
	seq    int64
	gauges [gauges]int64
}

// String is the position as the id of a message. Only position's own reader reads it.
func (p position) String() string {
	var b strings.Builder
	b.WriteString(strconv.FormatInt(p.seq, 36))
	for _, n := range p.gauges {
		b.WriteByte('.')
		b.WriteString(strconv.FormatInt(n, 36))
	}
	return b.String()
}

// parsePosition reads an id; false where it is none of ours.
func parsePosition(id string) (position, bool) {
	var p position
	parts := strings.Split(id, ".")
	if len(parts) != 1+int(gauges) {
		return p, false
	}
	var err error
	if p.seq, err = strconv.ParseInt(parts[0], 36, 64); err != nil || p.seq < 0 {
		return p, false
	}
	for i := range p.gauges {
		if p.gauges[i], err = strconv.ParseInt(parts[i+1], 36, 64); err != nil {
			return p, false
		}
	}
	return p, true
}

// shownTo is the position as a client of the scope may know it: the gauges that it
// may not see are 0.
func (p position) shownTo(sc scope.Scope) position {
	for i := range p.gauges {
		if !tells[i].seenIn(sc) {
			p.gauges[i] = 0
		}
	}
	return p
}
