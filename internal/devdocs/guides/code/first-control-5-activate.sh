curl -sS -X PUT "$GATEHOUSE_URL/api/v1/policies/$POLICY" -H "X-API-Key: $GATEHOUSE_API_KEY" -H 'Content-Type: application/json' \
  -d '{"status":"active"}'
