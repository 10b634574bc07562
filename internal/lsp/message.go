package lsp

import "encoding/json"

// Error codes of JSON-RPC and LSP.
const (
	codeParseError     = -32700
	codeInvalidRequest = -32600
	codeNoMethod       = -32601
	codeInvalidParams  = -32602
	codeInternal       = -32603
	codeNotInitialized = -32002
	codeRequestFailed  = -32803
)

// message is a message from the editor. Requests have an id, notifications have none.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

type response struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  any             `json:"result"`
	Error   *rpcError       `json:"error,omitempty"`
}

// MarshalJSON writes either the error or the result. JSON-RPC 2.0 requires the result of a success
// even if it is null.
func (r response) MarshalJSON() ([]byte, error) {
	body := map[string]any{"jsonrpc": r.JSONRPC, "id": r.ID}
	if r.Error != nil {
		body["error"] = r.Error
	} else {
		body["result"] = r.Result
	}
	return json.Marshal(body)
}

type notification struct {
	JSONRPC string `json:"jsonrpc"`
	Method  string `json:"method"`
	Params  any    `json:"params"`
}

type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// The structures of LSP that are used here. Lines and characters count from 0. Characters
// are UTF-16 code units.
type (
	position struct {
		Line      int `json:"line"`
		Character int `json:"character"`
	}
	extent struct {
		Start position `json:"start"`
		End   position `json:"end"`
	}
	textEdit struct {
		Range   extent `json:"range"`
		NewText string `json:"newText"`
	}
	markup struct {
		Kind  string `json:"kind"`
		Value string `json:"value"`
	}
	diagnostic struct {
		Range    extent `json:"range"`
		Severity int    `json:"severity"`
		Code     string `json:"code,omitempty"`
		Source   string `json:"source"`
		Message  string `json:"message"`
	}
	identifier struct {
		URI     string `json:"uri"`
		Version int64  `json:"version"`
	}
	// at has the parameters of requests about a position in a document.
	at struct {
		Document identifier `json:"textDocument"`
		Position position   `json:"position"`
	}
)

// clientAbilities are the capabilities of the editor.
type clientAbilities struct {
	snippets bool
}

// params decodes a message's parameters.
func params[T any](raw json.RawMessage) (T, *rpcError) {
	var v T
	if err := json.Unmarshal(raw, &v); err != nil {
		return v, &rpcError{codeInvalidParams, "the parameters cannot be read"}
	}
	return v, nil
}
