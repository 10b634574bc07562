POLICY=$(curl -sS -X POST "$GATEHOUSE_URL/api/v1/policies" -H "X-API-Key: $GATEHOUSE_API_KEY" -H 'Content-Type: application/json' \
  -d "{\"name\":\"Orders: staff read\",\"resource_id\":$RESOURCE,\"rego_code\":\"$REGO_CODE\",\"test_cases\":[
    {\"name\":\"staff read\",\"expected\":true,\"input\":{\"user\":{\"roles\":[\"staff\"]},\"action\":{\"method\":\"GET\"}}},
    {\"name\":\"visitors do not\",\"expected\":false,\"input\":{\"user\":{\"roles\":[\"visitor\"]},\"action\":{\"method\":\"GET\"}}}]}" \
  | sed 's/.*"id":\([0-9]*\).*/\1/')
curl -sS -X POST "$GATEHOUSE_URL/api/v1/policies/$POLICY/test" -H "X-API-Key: $GATEHOUSE_API_KEY" -H 'Content-Type: application/json' -d '{}'
