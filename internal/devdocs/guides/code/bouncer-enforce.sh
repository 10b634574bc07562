curl -sS -X PUT "$GATEHOUSE_URL/api/v1/environments/sandbox/enforcement" -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' \
  -d '{"mode":"enforce"}'
