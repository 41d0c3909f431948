package apiextensions

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// byBytes has the specs that are in use by the bytes that they were decoded from. Equal bytes are equal specs, so what
// is found here is not decoded: that would be nearly all the work, and nearly all the garbage, of a replica that
// starts.
var byBytes = shared[sharedSpec]{}

// find looks up the spec of a stored definition. It returns what is left to decode, and what completes and shares the
// definition that comes out of it.
func find(data []byte) (rest []byte, complete func(definition)) {
	rest, spec, ok := cut(data)
	if !ok {
		return data, func(d definition) { share(d) }
	}
	sum := sha256.Sum256(spec)
	known := byBytes.get(sum)
	if known == nil {
		return data, func(d definition) {
			if decoded := share(d); decoded != nil {
				byBytes.of(sum, decoded)
			}
		}
	}
	return rest, func(d definition) {
		d.Spec = known.spec
		apiextensionsv1.SetDefaults_CustomResourceDefinition(d) // of the status, by the spec
		shareRest(d)
	}
}

// protobufHead is what objects begin with that Kubernetes stores in protobuf.
var protobufHead = []byte("k8s\x00")

// The fields of protobuf messages that are looked at: those of runtime.Unknown, in which objects are stored, and of a
// definition.
const (
	unknownRaw     = 2
	definitionSpec = 2
)

// cut takes the spec out of the bytes of a stored definition. It returns false if they are not as an encoder writes
// them, and then says nothing about them.
func cut(data []byte) (rest, spec []byte, ok bool) {
	stored, ok := bytes.CutPrefix(data, protobufHead)
	if !ok {
		return nil, nil, false
	}
	before, raw, after, ok := split(stored, unknownRaw)
	if !ok {
		return nil, nil, false
	}
	front, spec, back, ok := split(raw, definitionSpec)
	if !ok {
		return nil, nil, false
	}
	rest = make([]byte, 0, len(data))
	rest = append(append(rest, protobufHead...), before...)
	rest = binary.AppendUvarint(append(rest, unknownRaw<<3|delimited), uint64(len(front)+len(back)))
	return append(append(append(rest, front...), back...), after...), spec, true
}

// delimited is the wire type of all fields of these messages.
const delimited = 2

// split returns the value of a field of a protobuf message, and what is before and behind it. It returns false unless
// the message has that field once, and only delimited ones.
func split(message []byte, field uint64) (before, value, after []byte, ok bool) {
	for at := 0; at < len(message); {
		tag, size := binary.Uvarint(message[at:])
		if size != 1 || tag&7 != delimited { // all numbers of fields fit in a byte
			return nil, nil, nil, false
		}
		length, more := binary.Uvarint(message[at+size:])
		begin := at + size + more
		if more <= 0 || length > uint64(len(message)-begin) {
			return nil, nil, nil, false
		}
		end := begin + int(length) //nolint:gosec // it is within the message
		if tag>>3 == field {
			if ok {
				return nil, nil, nil, false
			}
			before, value, after, ok = message[:at], message[begin:end], message[end:], true
		}
		at = end
	}
	return before, value, after, ok
}
