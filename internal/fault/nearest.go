package fault

import "strings"

// Nearest returns the known name that a mistyped one probably means: the one with the fewest
// differing bytes, ignoring case. It is empty if all of them differ in more than a quarter of the
// name and in more than two bytes. Of equally near names it is the first.
func Nearest(name string, known []string) string {
	if len(name) > 100 {
		return ""
	}
	lower := strings.ToLower(name)
	best, far := "", max(2, len(name)/4)+1
	for _, k := range known {
		if d := distance(lower, strings.ToLower(k)); d < far && d < len(name) {
			best, far = k, d
		}
	}
	return best
}

// DidYouMean returns the end of a message about an unknown name, with the nearest known name; empty
// if there is none.
func DidYouMean(name string, known []string) string {
	if near := Nearest(name, known); near != "" {
		return `; did you mean "` + near + `"?`
	}
	return ""
}

// distance returns the Levenshtein distance of two texts, in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diagonal
			if a[i-1] != b[j-1] {
				cost++
			}
			diagonal = row[j]
			row[j] = min(cost, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}
