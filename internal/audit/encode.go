package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/gatehouse-dev/gatehouse/internal/redact"
	"github.com/gatehouse-dev/gatehouse/internal/rego/value"
	"github.com/gatehouse-dev/gatehouse/internal/scope"
)

// A spool record is a version byte, the tenant, a newline, and the decision as JSON. Tenant ids
// are DNS labels, so they contain no newline. In a record with an input for replay, the version
// differs, the length of the JSON and a newline come before the JSON, and the input follows it.
const (
	recordVersion = '1'
	inputVersion  = '2'
)

// errRecord is a spool record that this program cannot read.
var errRecord = errors.New("not a decision record")

// appendRecord writes d as a spool record with redacted documents.
func appendRecord(dst []byte, tenant scope.TenantID, d *Decision) []byte {
	start := len(dst)
	dst = append(dst, recordVersion)
	dst = append(dst, tenant...)
	dst = append(dst, '\n')
	if len(d.Replay) == 0 {
		return appendDecision(dst, d)
	}
	const digits = 10 // a length of fixed width, so that it can be filled in later
	length := len(dst)
	dst = append(dst, "0000000000\n"...)
	dst = appendDecision(dst, d)
	n := len(dst) - length - digits - 1
	dst, ok := redact.JSON(dst, d.Replay)
	if !ok { // the input is not valid JSON: store the decision without it
		return append(dst[:length], dst[length+digits+1:length+digits+1+n]...)
	}
	dst[start] = inputVersion
	for i := length + digits - 1; n > 0; i-- {
		dst[i] = byte('0' + n%10)
		n /= 10
	}
	return dst
}

// parseRecord splits a spool record; line and input alias rec. input is empty when none is
// stored for replay.
func parseRecord(rec []byte) (tenant scope.TenantID, line, input []byte, err error) {
	if len(rec) < 3 || rec[0] != recordVersion && rec[0] != inputVersion {
		return "", nil, nil, errRecord
	}
	name, rest, ok := bytes.Cut(rec[1:], []byte{'\n'})
	if !ok {
		return "", nil, nil, errRecord
	}
	if rec[0] == recordVersion {
		return scope.TenantID(name), rest, nil, nil
	}
	length, rest, ok := bytes.Cut(rest, []byte{'\n'})
	n, err := strconv.Atoi(string(length))
	if !ok || err != nil || n < 0 || n > len(rest) {
		return "", nil, nil, errRecord
	}
	return scope.TenantID(name), rest[:n], rest[n:], nil
}

// appendDecision writes d as encoding/json would. It is written by hand because it is on the
// decision path. Input, Trace and Explanation are redacted on the way. The members have the
// order of the struct; the hash chain covers exactly these bytes.
func appendDecision(dst []byte, d *Decision) []byte {
	dst = append(dst, `{"decision_id":`...)
	dst = appendString(dst, d.DecisionID)
	dst = append(dst, `,"timestamp":"`...)
	dst = d.Timestamp.UTC().Truncate(time.Microsecond).AppendFormat(dst, time.RFC3339Nano)
	dst = append(dst, `","user":{"id":`...)
	dst = appendString(dst, d.User.ID)
	dst = append(dst, `,"email":`...)
	dst = appendString(dst, d.User.Email)
	dst = append(dst, `},"resource":{`...)
	if d.Resource.ID != "" {
		dst = append(dst, `"id":`...)
		dst = append(appendString(dst, d.Resource.ID), ',')
	}
	dst = append(dst, `"type":`...)
	dst = appendString(dst, d.Resource.Type)
	dst = append(dst, `,"path":`...)
	dst = appendString(dst, d.Resource.Path)
	dst = append(dst, `},"action":`...)
	dst = appendString(dst, d.Action)
	dst = append(dst, `,"decision":`...)
	dst = appendString(dst, d.Decision)
	dst = optString(dst, "effect", d.Effect)
	dst = optInt(dst, "policy_id", d.PolicyID)
	if d.PolicyName == nil {
		dst = append(dst, `,"policy_name":null`...)
	} else {
		dst = append(dst, `,"policy_name":`...)
		dst = appendString(dst, *d.PolicyName)
	}
	dst = optInt(dst, "policy_version", d.PolicyVersion)
	dst = append(dst, `,"reason":`...)
	dst = appendString(dst, d.Reason)
	dst = append(dst, `,"evaluation_time_ms":`...)
	dst = appendFloat(dst, d.EvaluationTimeMS)
	dst = append(dst, `,"ip_address":`...)
	dst = appendString(dst, d.IPAddress)
	return appendExtensions(dst, d)
}

// appendExtensions writes the members that go beyond the published entry format.
func appendExtensions(dst []byte, d *Decision) []byte {
	dst = append(dst, `,"environment":`...)
	dst = appendString(dst, string(d.Environment))
	dst = optInt(dst, "resource_id", d.ResourceID)
	dst = optInt(dst, "bouncer_id", d.BouncerID)
	dst = optString(dst, "request_id", d.RequestID)
	dst = optString(dst, "caller_decision_id", d.CallerID)
	dst = append(dst, `,"cache_hit":`...)
	dst = strconv.AppendBool(dst, d.CacheHit)
	dst = optInt(dst, "revision", d.Revision)
	dst = optString(dst, "mode", d.Mode)
	if len(d.RegulationTags) > 0 {
		dst = append(dst, `,"regulation_tags":[`...)
		for i, tag := range d.RegulationTags {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendString(dst, tag)
		}
		dst = append(dst, ']')
	}
	dst = optString(dst, "audit_level", string(d.AuditLevel))
	dst = optString(dst, "error", d.Error)
	dst = d.Agent.AppendJSON(dst)
	if d.Folded != nil {
		dst = appendFolded(dst, d.Folded)
	}
	if len(d.Input) > 0 {
		dst = append(dst, `,"input":`...)
		dst, _ = redact.JSON(dst, d.Input)
	}
	if len(d.Trace) > 0 {
		dst = append(dst, `,"trace":`...)
		dst = appendTrace(dst, d.Trace, d.Hidden)
	}
	if len(d.Explanation) > 0 {
		dst = append(dst, `,"explanation":`...)
		dst = appendExplanation(dst, d.Explanation, d.Hidden)
	}
	return append(dst, '}')
}

func optString(dst []byte, name, s string) []byte {
	if s == "" {
		return dst
	}
	dst = append(dst, ',', '"')
	dst = append(dst, name...)
	dst = append(dst, '"', ':')
	return appendString(dst, s)
}

func optInt(dst []byte, name string, n int64) []byte {
	if n == 0 {
		return dst
	}
	dst = append(dst, ',', '"')
	dst = append(dst, name...)
	dst = append(dst, '"', ':')
	return strconv.AppendInt(dst, n, 10)
}

func appendFloat(dst []byte, f float64) []byte {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return append(dst, '0')
	}
	return strconv.AppendFloat(dst, f, 'f', -1, 64)
}

// appendString appends s as a JSON string. It replaces invalid UTF-8 with U+FFFD, and NUL too,
// because PostgreSQL cannot store NUL in a text.
func appendString(dst []byte, s string) []byte {
	if strings.IndexByte(s, 0) >= 0 {
		s = strings.ReplaceAll(s, "\x00", "\uFFFD")
	}
	return value.AppendString(dst, s)
}

// decodeDecision reads the JSON of a record.
func decodeDecision(line []byte) (Decision, error) {
	var d Decision
	if err := json.Unmarshal(line, &d); err != nil {
		return Decision{}, err
	}
	return d, nil
}
