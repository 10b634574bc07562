curl -i http://127.0.0.1:8081/_bouncer/ready
curl -i http://127.0.0.1:8081/orders/7
curl -sS "$GATEHOUSE_URL/api/v1/decisions/audit?environment=sandbox&limit=5" -H "Authorization: Bearer $TOKEN"
