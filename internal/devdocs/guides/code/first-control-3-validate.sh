cat > orders.rego <<'REGO'
package orders

default allow := false

allow if {
	"staff" in input.user.roles
	input.action.method == "GET"
}

reason := "only staff may read orders" if not allow
REGO
REGO_CODE=$(sed 's/\\/\\\\/g; s/"/\\"/g; s/\t/\\t/g' orders.rego | awk '{printf "%s\\n", $0}')
curl -sS -X POST "$GATEHOUSE_URL/api/v1/policies/validate" -H "X-API-Key: $GATEHOUSE_API_KEY" -H 'Content-Type: application/json' \
  -d "{\"rego_code\":\"$REGO_CODE\"}"
