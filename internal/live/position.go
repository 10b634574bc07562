package live

import (
	"strconv"
	"strings"

	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// gauge identifies a number that changes when something changes that the administrative log does
// not record. The number need not grow.
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
	gaugeCount // the number of gauges
)

// gaugeChanges are the changes that the gauges stand for.
var gaugeChanges = [gaugeCount]Change{
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

// position is the state that a hub or a client knows: the last entry of the administrative log, and
// the values of the gauges.
type position struct {
	seq    int64
	gauges [gaugeCount]int64
}

// String returns the position as the id of a message, for parsePosition.
func (p position) String() string {
	var b strings.Builder
	b.WriteString(strconv.FormatInt(p.seq, 36))
	for _, n := range p.gauges {
		b.WriteByte('.')
		b.WriteString(strconv.FormatInt(n, 36))
	}
	return b.String()
}

// parsePosition parses the id of a message; false if it is not valid.
func parsePosition(id string) (position, bool) {
	var p position
	parts := strings.Split(id, ".")
	if len(parts) != 1+int(gaugeCount) {
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

// shownTo returns the position with the gauges that the scope may not see set to 0.
func (p position) shownTo(sc scope.Scope) position {
	for i := range p.gauges {
		if !gaugeChanges[i].seenIn(sc) {
			p.gauges[i] = 0
		}
	}
	return p
}
