package spool

import (
	"encoding/binary"
	"hash/crc32"
)

// A frame is a record on disk: its length, the CRC-32C of all other fields, its number, its bytes.
const headerBytes = 4 + 4 + 8

// castagnoli is the table of CRC-32C, for which processors have an instruction.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func frameSize(n int) int64 { return headerBytes + int64(n) }

// checksum covers the length, the number and the bytes of a record.
func checksum(header, payload []byte) uint32 {
	sum := crc32.Update(0, castagnoli, header[:4])
	sum = crc32.Update(sum, castagnoli, header[8:headerBytes])
	return crc32.Update(sum, castagnoli, payload)
}

func appendFrame(dst []byte, seq uint64, payload []byte) []byte {
	at := len(dst)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(payload)))
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.LittleEndian.AppendUint64(dst, seq)
	dst = append(dst, payload...)
	header := dst[at : at+headerBytes]
	binary.LittleEndian.PutUint32(header[4:], checksum(header, payload))
	return dst
}

// frame is one record in a segment.
type frame struct {
	seq     uint64
	payload []byte // part of the data that was searched
	start   int
	end     int
}

// frameAt reads the frame at off. ok is false unless it is complete and undamaged and its number is
// at least min. need is the length of the frame according to its header, from off on.
func frameAt(data []byte, off int, min uint64) (f frame, need int, ok bool) {
	if len(data)-off < headerBytes {
		return frame{}, headerBytes, false
	}
	header := data[off : off+headerBytes]
	n := int64(binary.LittleEndian.Uint32(header))
	seq := binary.LittleEndian.Uint64(header[8:])
	if n == 0 || n > MaxRecord || seq < min {
		return frame{}, 0, false
	}
	end := int64(off) + headerBytes + n
	if end > int64(len(data)) {
		return frame{}, int(headerBytes + n), false
	}
	payload := data[off+headerBytes : end]
	if checksum(header, payload) != binary.LittleEndian.Uint32(header[4:]) {
		return frame{}, 0, false
	}
	return frame{seq: seq, payload: payload, start: off, end: int(end)}, 0, true
}

// findFrame returns the first undamaged frame at off or after it. It cannot mistake a part of a
// damaged record for a frame: a header contains zero bytes, and the records of gatehouse are JSON
// and contain none.
func findFrame(data []byte, off int, min uint64) (frame, bool) {
	// A number that is too high for the amount of data is not valid. This check avoids computing
	// checksums in damaged data.
	most := min + uint64(len(data)) + 1<<32
	for ; len(data)-off >= headerBytes; off++ {
		if binary.LittleEndian.Uint64(data[off+8:]) > most {
			continue
		}
		if f, _, ok := frameAt(data, off, min); ok {
			return f, true
		}
	}
	return frame{}, false
}
