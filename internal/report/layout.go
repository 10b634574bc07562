package report

import "strings"

// The limits at which a cell of a report is cut. The JSON and CSV exports have the complete text.
const (
	maxCellRunes = 700
	maxCellLines = 40
)

// column is one column of a table. Its width is in mm.
type column struct {
	title string
	width float64
	font  string
}

// table is a table that may continue over several pages. Its head is on each of them.
type table struct {
	r       *report
	columns []column
	inks    map[int]colour // colours of the next row, by column
}

func (r *report) table(columns []column) *table {
	t := &table{r: r, columns: columns, inks: map[int]colour{}}
	r.room(18)
	t.head()
	return t
}

func (t *table) head() {
	top := t.r.GetY()
	x := margin
	for _, c := range t.columns {
		t.r.SetXY(x, top)
		t.r.text(sans, "B", 8.5, grey, c.title)
		x += c.width
	}
	t.r.line(top+5, rule)
	t.r.SetY(top + 6)
}

// newPage continues the table on a new page.
func (t *table) newPage() {
	t.r.AddPage()
	t.r.SetY(margin)
	t.head()
}

// colour sets the text colour of one column of the next row.
func (t *table) colour(i int, c colour) { t.inks[i] = c }

func (t *table) row(cells ...string) {
	const lead = 4.4
	wrapped := make([][]string, len(cells))
	lines := 1
	for i, cell := range cells {
		t.r.font(t.columns[i].font, "", t.size(i))
		wrapped[i] = t.r.wrap(cell, t.columns[i].width-3)
		if len(wrapped[i]) > maxCellLines {
			wrapped[i] = append(wrapped[i][:maxCellLines:maxCellLines], "… (cut here)")
		}
		lines = max(lines, len(wrapped[i]))
	}
	for from := 0; from < lines; {
		if pageBottom-t.r.GetY() < lead+1.6 {
			t.newPage()
		}
		// Write as many lines as fit on the page. A cell may be longer than a page.
		n := min(lines-from, int((pageBottom-t.r.GetY()-1.6)/lead))
		if from == 0 && n < lines && lines <= 12 {
			t.newPage()
			n = min(lines, int((pageBottom-t.r.GetY()-1.6)/lead))
		}
		t.lines(wrapped, from, from+n, lead)
		from += n
	}
	clear(t.inks)
}

func (t *table) size(i int) float64 {
	if t.columns[i].font == mono {
		return 8.5
	}
	return 9
}

func (t *table) lines(wrapped [][]string, from, to int, lead float64) {
	top := t.r.GetY()
	x := margin
	for i, cell := range wrapped {
		c, special := t.inks[i]
		if !special {
			c = ink
		}
		for n := from; n < min(to, len(cell)); n++ {
			t.r.SetXY(x, top+float64(n-from)*lead)
			t.r.text(t.columns[i].font, "", t.size(i), c, cell[n])
		}
		x += t.columns[i].width
	}
	bottom := top + float64(to-from)*lead
	t.r.line(bottom+0.8, rule)
	t.r.SetY(bottom + 1.6)
}

// section writes a heading and a sentence below it, on the same page as the next few lines.
func (r *report) section(title, says string) {
	r.SetY(r.room(19))
	r.SetX(margin)
	r.text(sans, "B", 12, pine, title)
	r.SetY(r.GetY() + 6.2)
	if says != "" {
		r.paragraph(sans, "", 9, grey, says, 4.6)
	}
	r.gap(1.2)
}

// boxed writes a box of remarks with a coloured edge.
func (r *report) boxed(title string, remarks []string, c colour) {
	r.font(sans, "", 9.5)
	var lines []string
	for _, remark := range remarks {
		for i, l := range r.wrap(remark, contentMM-13) {
			if i == 0 {
				lines = append(lines, "•  "+l)
			} else {
				lines = append(lines, "    "+l)
			}
		}
	}
	const lead = 4.8
	for first := true; first || len(lines) > 0; first = false {
		top := r.room(20)
		n := min(len(lines), int((pageBottom-top-11)/lead))
		height := float64(n)*lead + 10
		r.fill(cream)
		r.Rect(margin, top, contentMM, height, "F")
		r.fill(c)
		r.Rect(margin, top, 1.2, height, "F")
		r.SetXY(margin+5, top+2.5)
		r.text(sans, "B", 9.5, c, title)
		for i, l := range lines[:n] {
			r.SetXY(margin+5, top+8+float64(i)*lead)
			r.text(sans, "", 9.5, ink, l)
		}
		lines = lines[n:]
		r.SetY(top + height)
		r.gap(4)
	}
}

func (r *report) small(says string) {
	r.gap(1)
	r.paragraph(sans, "", 9, grey, says, 4.6)
}

// paragraph writes wrapped lines at the left margin, over several pages if needed.
func (r *report) paragraph(family, style string, size float64, c colour, says string, lead float64) {
	r.font(family, style, size)
	for _, l := range r.wrap(says, contentMM) {
		top := r.room(lead)
		r.SetXY(margin, top)
		r.text(family, style, size, c, l)
		r.SetY(top + lead)
	}
}

// room returns the vertical position for something of this height in mm. It adds a page if the
// current one has no room.
func (r *report) room(height float64) float64 {
	if r.GetY()+height > pageBottom {
		r.AddPage()
		r.SetY(margin)
	}
	return r.GetY()
}

func (r *report) gap(mm float64) { r.SetY(r.GetY() + mm) }

func (r *report) font(family, style string, size float64) {
	r.SetFont(family, style, size)
	r.family, r.style, r.size = family, style, size
}

func (r *report) ink(c colour)  { r.SetTextColor(c[0], c[1], c[2]) }
func (r *report) fill(c colour) { r.SetFillColor(c[0], c[1], c[2]) }

func (r *report) line(y float64, c colour) {
	r.SetDrawColor(c[0], c[1], c[2])
	r.SetLineWidth(0.2)
	r.Line(margin, y, pageWidth-margin, y)
}

// text writes one line at the current position, and does not change the position.
func (r *report) text(family, style string, size float64, c colour, says string) {
	r.font(family, style, size)
	r.ink(c)
	x, y := r.GetXY()
	r.draw(size*0.47, r.drawable(says))
	r.SetXY(x, y)
}

func (r *report) right(family, style string, size float64, c colour, says string) {
	r.font(family, style, size)
	r.ink(c)
	x, y := r.GetXY()
	r.CellFormat(contentMM, size*0.47, r.drawable(says), "", 0, "RM", false, 0, "")
	r.SetXY(x, y)
}

// wrap breaks a text into lines of at most width mm in the current font. It breaks at spaces,
// before Chinese characters, and in words that are longer than a line. It also makes the text
// drawable.
func (r *report) wrap(says string, width float64) []string {
	var lines []string
	for i, part := range strings.Split(says, "\n") {
		if i > 0 && part == "" {
			continue
		}
		lines = append(lines, r.wrapLine(r.drawable(part), width)...)
	}
	return lines
}

func (r *report) wrapLine(says string, width float64) []string {
	text := []rune(says)
	if len(text) > maxCellRunes {
		text = append(text[:maxCellRunes:maxCellRunes], []rune(" … (cut here)")...)
	}
	var lines []string
	start, space, used := 0, -1, 0.0
	for i := 0; i < len(text); i++ {
		w := r.widthOf(text[i])
		if used+w > width && i > start {
			end, next := i, i
			if space > start {
				end, next = space, space+1
				if text[space] != ' ' {
					next = space
				}
			}
			lines = append(lines, string(text[start:end]))
			start, space, used, i = next, -1, 0, next-1
			continue
		}
		if family, _ := familyOf(text[i]); text[i] == ' ' || family == wide {
			space = i // a line may break here: at a space, or before a Chinese character
		}
		used += w
	}
	return append(lines, string(text[start:]))
}
