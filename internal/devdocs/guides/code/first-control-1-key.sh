export GATEHOUSE_URL=http://127.0.0.1:8080
TOKEN=$(curl -sS "$GATEHOUSE_URL/api/v1/auth/login" -H 'Content-Type: application/json' \
  -d "{\"username\":\"admin\",\"password\":\"$GATEHOUSE_ADMIN_PASSWORD\"}" | sed 's/.*"access_token":"\([^"]*\)".*/\1/')
export GATEHOUSE_API_KEY=$(curl -sS -X POST "$GATEHOUSE_URL/api/v1/developer-portal/api-keys/sandbox/generate" \
  -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' \
  -d '{"name":"first control","scopes":["policies:write","resources:write","decisions:read"]}' | sed 's/.*"key":"\([^"]*\)".*/\1/')
