curl -sS -X POST "$GATEHOUSE_URL/api/v1/bouncers" -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' \
  -d '{"name":"shop","hostname":"shop.internal","port":8081,"environment":"sandbox"}'
