# Grants of access whose time it is, by subject: what controls read as data.grants.
# object.get hides the type of what is granted, as that of data is hidden.
package gatehouse

grants := object.get({"live": live_grants}, "live", {})

live_grants[subject] := list if {
	some subject, all in data.gatehouse.granted
	now := time.now_ns()
	list := [g | some g in all; g.starts_ns <= now; now < g.expires_ns]
	count(list) > 0
}
