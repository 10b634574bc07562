package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
)

// control is the policy of all servers: roles, department, clearance against sensitivity, trusted
// networks and hours.
const control = `package authz

import rego.v1

roles := {
	"admin": {"read", "write", "delete", "approve"},
	"manager": {"read", "write", "approve"},
	"engineer": {"read", "write"},
	"analyst": {"read"},
	"guest": set(),
}

trusted := ["10.0.0.0/8", "192.168.0.0/16", "172.16.0.0/12"]

record := data.resources[format_int(input.resource.id, 10)]

default allow := false

allow if {
	permitted
	same_department
	cleared
	from_trusted_network
	in_hours
}

permitted if {
	some role in input.user.roles
	input.action.name in roles[role]
}

same_department if input.user.department == record.attributes.department
same_department if "admin" in input.user.roles

cleared if input.user.attributes.clearance >= record.attributes.sensitivity

from_trusted_network if {
	some network in trusted
	net.cidr_contains(network, input.context.ip_address)
}

in_hours if {
	[hour, _, _] := time.clock(time.parse_rfc3339_ns(input.context.timestamp))
	hour >= 6
	hour < 22
}

reason := "all conditions hold" if allow
else := "role does not permit the action" if not permitted
else := "other department" if not same_department
else := "clearance too low" if not cleared
else := "network is not trusted" if not from_trusted_network
else := "out of hours"

decision := {"allow": allow, "reason": reason}
`

const (
	resourceCount = 200
	requestCount  = 1000
)

var (
	roleNames   = []string{"admin", "manager", "engineer", "analyst", "guest"}
	departments = []string{"finance", "legal", "engineering", "sales"}
	actions     = []string{"read", "write", "delete", "approve"}
	networks    = []string{"10.1.2.%d", "192.168.7.%d", "172.20.1.%d", "203.0.113.%d"}
)

// resourceAttributes returns the attributes of the i-th resource.
func resourceAttributes(i int) map[string]any {
	return map[string]any{"department": departments[i%len(departments)], "sensitivity": i % 4}
}

// inputs returns the requests, about 450 bytes each, for resources with these ids.
func inputs(ids []int64) []map[string]any {
	rng := rand.New(rand.NewPCG(7, 11))
	pick := func(list []string) string { return list[rng.IntN(len(list))] }
	out := make([]map[string]any, requestCount)
	for i := range out {
		user := fmt.Sprintf("user-%04d", i)
		at := rng.IntN(len(ids))
		department := departments[at%len(departments)]
		if rng.IntN(4) == 0 {
			department = pick(departments)
		}
		out[i] = map[string]any{
			"user": map[string]any{
				"id": user, "email": user + "@bench.example", "roles": []string{pick(roleNames), pick(roleNames)},
				"department": department, "attributes": map[string]any{"clearance": rng.IntN(5), "manager": "user-0001"},
			},
			"resource": map[string]any{"id": ids[at], "type": "api", "path": fmt.Sprintf("/records/%d", at)},
			"action":   map[string]any{"name": pick(actions), "method": "GET"},
			"context": map[string]any{
				"ip_address": fmt.Sprintf(pick(networks), i%250+1),
				"timestamp":  fmt.Sprintf("2026-11-20T%02d:15:00Z", rng.IntN(24)), "request_id": fmt.Sprintf("req-%06d", i),
			},
		}
	}
	return out
}

// opaData returns data.resources for OPA: the same attributes, by the same ids.
func opaData(ids []int64) []byte {
	resources := map[string]any{}
	for i, id := range ids {
		resources[fmt.Sprint(id)] = map[string]any{"id": id, "name": fmt.Sprintf("record %d", i), "attributes": resourceAttributes(i)}
	}
	data, _ := json.Marshal(map[string]any{"resources": resources}) // maps of plain values always encode
	return data
}
