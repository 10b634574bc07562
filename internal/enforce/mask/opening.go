package mask

import "strings"

// opening are words that answers often begin with. If the first word of a stream is one of them, it
// passes at once, so that readers see that the model answers. It could be the beginning of an e-mail
// address, but it reveals nothing, and the rest of the address is masked.
var opening = func() map[string]bool {
	out := map[string]bool{}
	for w := range strings.FieldsSeq(`a absolutely after all an and are as at based because before both but by can certainly could do does for from great hello here
		hey hi how however i if in is it just let no not of okay on one please since so some sorry sure thank thanks that the there these they
		this to unfortunately was we well what when where which while why yes you your`) {
		out[w] = true
		out[strings.ToUpper(w[:1])+w[1:]] = true
	}
	return out
}()
