package backups

import (
	"errors"
	"fmt"
	"slices"
)

// errForeign is wrapped by the error of a store whose backup is not that of the directory.
var errForeign = errors.New("the store has another backup")

// instead is what to do then.
const instead = "copy to another prefix, or fetch that backup with regent backup fetch into a new directory, and continue there"

// commonOf returns the names of files of which both have something.
func commonOf(local map[string]int64, is stored) []string {
	return slices.DeleteFunc(sortedNames(is), func(name string) bool { return local[name] == 0 })
}

// compare says by the names of files whether the store has a copy of the directory.
func compare(local map[string]int64, is stored, known bool) error {
	if len(is) > 0 && !known {
		return fmt.Errorf("%w: no file of it is in the directory: %s", errForeign, instead)
	}
	oldest := oldestOf(local)
	for _, name := range sortedNames(is) {
		whole, ok := local[name]
		end, _ := is[name].read()
		switch {
		case ok && end > whole && !isBase(name):
			return fmt.Errorf("%w: it has %d bytes of %s, and the directory has %d: %s", errForeign, end, name, whole, instead)
		case !ok && name > oldest[isBase(name)]:
			return fmt.Errorf("%w, or somebody else writes there: the directory lacks %s: %s. If you have removed the file, delete the object too", errForeign, name, instead)
		}
	}
	return nil
}

// oldestOf returns the oldest base, and the oldest changes: what is older was removed.
func oldestOf(local map[string]int64) map[bool]string {
	oldest := map[bool]string{}
	for _, name := range sortedNames(local) {
		if oldest[isBase(name)] == "" {
			oldest[isBase(name)] = name
		}
	}
	return oldest
}

// step is one request that changes the store: it puts a piece of a file, or removes objects.
type step struct {
	file string
	piece
	whole  bool
	remove []string
}

// plan returns the next step; nil: the store has all. What is being written comes first.
func plan(local map[string]int64, is stored, deletes bool) *step {
	names := sortedNames(local)
	for i, name := range slices.Backward(names) { // changes first, the last one is being written
		whole, c := local[name], is[name]
		if c == nil {
			c = &copies{}
		}
		if isOpen := i == len(names)-1 && !isBase(name); isOpen {
			end, _ := c.read()
			switch {
			case end >= whole:
			case len(c.parts) >= partsMost && deletes:
				return &step{file: name, piece: piece{0, whole}, whole: true}
			default:
				return &step{file: name, piece: piece{end, min(whole-end, partMost)}}
			}
		} else if c.whole != whole {
			s := &step{file: name, piece: piece{0, whole}, whole: true}
			if isBase(name) {
				s.bytes = 0 // as many as it has when it is read: another one may take its place
			}
			return s
		}
	}
	if !deletes {
		return nil
	}
	oldest := oldestOf(local)
	for _, name := range sortedNames(is) {
		_, ok := local[name]
		if !ok && name > oldest[isBase(name)] {
			continue // whoever wrote it, it is not removed
		}
		if remove := is[name].objects(name, ok); len(remove) > 0 {
			return &step{remove: remove[:min(len(remove), partsMost)]}
		}
	}
	return nil
}
