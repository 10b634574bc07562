package report

import (
	"strings"
	"testing"

	"github.com/gatehouse-dev/gatehouse/internal/errtest"
)

// words has one sentence in each script that a report can show.
var words = map[string]string{
	"Chinese":    "访问被拒绝：仅限人力资源部",
	"Japanese":   "給与データへのアクセス「拒否」",
	"Korean":     "급여 자료에 대한 접근 거부",
	"Vietnamese": "Từ chối truy cập bảng lương",
	"Russian":    "Доступ к зарплате запрещён",
	"Greek":      "Η πρόσβαση απορρίφθηκε",
	"Armenian":   "Մուտքը մերժված է",
	"Georgian":   "წვდომა უარყოფილია",
	"Polish":     "Zażółć gęślą jaźń",
}

// TestPDFScripts checks that names, reasons and values are readable in all these scripts. Characters
// of other scripts are spelled out.
func TestPDFScripts(t *testing.T) {
	rec := sample(t)
	var members []string
	for name, sentence := range words {
		members = append(members, `"`+name+`":"`+sentence+`"`)
	}
	members = append(members, `"Hebrew":"הגישה נדחתה (שכר 42)","Arabic":"تم رفض الوصول إلى الرواتب 2026","Hindi":"पहुँच","Emoji":"😀"`)
	rec.Input = doc(t, "{"+strings.Join(members, ",")+"}")
	rec.EvaluatedInput = rec.Input
	rec.Reason = words["Japanese"] + " " + words["Korean"]
	rec.Policy.Name = words["Chinese"] + " — محمد، " + words["Russian"]
	file, err := exportPDF(keptSample(t, rec), "default", ran)
	errtest.Must(t, err)
	if len(file) > 300<<10 {
		t.Errorf("the file has %d bytes, want at most 300 KiB: fonts contain only what is used", len(file))
	}
	text := textOf(t, file, "scripts")
	for name, sentence := range words {
		if !strings.Contains(strings.Join(strings.Fields(text), ""), strings.Join(strings.Fields(sentence), "")) {
			t.Errorf("%s: the report has no %q", name, sentence)
		}
	}
	for _, want := range []string{"[U+1F600 GRINNING FACE]", "[U+0901 DEVANAGARI SIGN CANDRABINDU]"} {
		if !strings.Contains(strings.Join(strings.Fields(text), " "), want) {
			t.Errorf("the report is\n%s\nwant %q in it", text, want)
		}
	}
}
