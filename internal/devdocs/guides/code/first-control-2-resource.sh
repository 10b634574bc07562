RESOURCE=$(curl -sS -X POST "$GATEHOUSE_URL/api/v1/resources" -H "X-API-Key: $GATEHOUSE_API_KEY" -H 'Content-Type: application/json' \
  -d '{"name":"Orders","type":"api","path":"/portal-orders/**","methods":["GET","POST"]}' | sed 's/.*"id":\([0-9]*\).*/\1/')
echo "resource $RESOURCE"
