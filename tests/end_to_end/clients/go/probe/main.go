// The probe on amqp091-go: one order a line on stdin, one report a line on stdout (support/clients/probes.py says what they mean).
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const patience = 120 * time.Second // how long a busy machine takes is not what is tested

type order map[string]string

func (o order) number(name string) int {
	number, _ := strconv.Atoi(o[name])
	return number
}

func (o order) seconds(name string) time.Duration {
	seconds, _ := strconv.ParseFloat(o[name], 64)
	return time.Duration(seconds * 1e9)
}

type failure struct {
	Class string `json:"class"`
	Code  int    `json:"code"`
	Text  string `json:"text"`
}

type returned struct {
	Code int    `json:"code"`
	Text string `json:"text"`
	Key  string `json:"key"`
	Body string `json:"body"`
}

type report struct {
	sync.Mutex
	Seen       []string    `json:"seen"`
	Commit     string      `json:"commit"`
	Returns    []returned  `json:"returns"`
	Channel    interface{} `json:"channel"`
	Refused    interface{} `json:"refused"`
	Blocked    []string    `json:"blocked"`
	Unblocked  int         `json:"unblocked"`
	Other      interface{} `json:"other"`
	Heard      int         `json:"heard"`
	LongestGap float64     `json:"longest_gap_s"`
	Outcomes   string      `json:"outcomes"`
}

// hasSeen says that there is nothing more to linger for.
func (r *report) hasSeen(expect int) bool {
	r.Lock()
	defer r.Unlock()
	return len(r.Blocked) > 0 && len(r.Blocked) == r.Unblocked || expect > 0 && r.Heard >= expect
}

// told is an error as the report has it; `where` is the way it reached the application.
func told(where string, err error) failure {
	var closed *amqp.Error
	if errors.As(err, &closed) {
		return failure{where, closed.Code, closed.Reason}
	}
	return failure{where, 0, err.Error()}
}

func publish(channel *amqp.Channel, o order, number int) string {
	id := fmt.Sprintf("%s-%d", o["run"], number)
	message := amqp.Publishing{MessageId: id, Body: []byte(id)}
	within, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	confirmation, err := channel.PublishWithDeferredConfirmWithContext(within, "", o["key"], o["mandatory"] == "1", false, message)
	if err != nil {
		return "error"
	}
	if confirmation == nil {
		return "sent"
	}
	acked, err := confirmation.WaitContext(within)
	if err != nil {
		return "no answer"
	}
	if acked {
		return "ack"
	}
	return "Ack=false"
}

func otherChannelLives(connection *amqp.Connection, other *amqp.Channel, o order) interface{} {
	within, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	message := amqp.Publishing{Body: []byte("other")}
	confirmation, err := other.PublishWithDeferredConfirmWithContext(within, "", o["free"], false, false, message)
	if err != nil {
		return told("publish", err)
	}
	if acked, err := confirmation.WaitContext(within); err != nil || !acked {
		return "not confirmed"
	}
	for within.Err() == nil {
		delivery, ok, err := other.Get(o["free"], true)
		if err != nil {
			return told("get", err)
		}
		if ok {
			another, err := connection.Channel()
			if err != nil {
				return told("channel", err)
			}
			another.Close()
			if string(delivery.Body) == "other" {
				return "ok"
			}
			return "got " + string(delivery.Body)
		}
	}
	return "nothing consumed"
}

func listen(connection *amqp.Connection, queue string, back bool, r *report) error {
	channel, err := connection.Channel()
	if err != nil {
		return err
	}
	deliveries, err := channel.Consume(queue, "", !back, false, false, false, nil)
	if err != nil {
		return err
	}
	go func() {
		var last time.Time
		for delivery := range deliveries {
			r.Lock()
			if gap := time.Since(last).Seconds(); r.Heard > 0 && gap > r.LongestGap {
				r.LongestGap = gap
			}
			last = time.Now()
			r.Heard++
			r.Unlock()
			if back && delivery.Redelivered {
				delivery.Ack(false)
			} else if back {
				delivery.Nack(false, true)
			}
		}
	}()
	return nil
}

func watch(connection *amqp.Connection, channel *amqp.Channel, r *report) (closings, connectionClosings chan *amqp.Error) {
	blockings := connection.NotifyBlocked(make(chan amqp.Blocking, 16))
	go func() {
		for blocking := range blockings {
			r.Lock()
			if blocking.Active {
				r.Blocked = append(r.Blocked, blocking.Reason)
			} else {
				r.Unblocked++
			}
			r.Unlock()
		}
	}()
	returns := channel.NotifyReturn(make(chan amqp.Return, 16))
	go func() {
		for one := range returns {
			r.Lock()
			r.Returns = append(r.Returns, returned{int(one.ReplyCode), one.ReplyText, one.RoutingKey, string(one.Body)})
			r.Unlock()
		}
	}()
	return channel.NotifyClose(make(chan *amqp.Error, 1)), connection.NotifyClose(make(chan *amqp.Error, 1))
}

func perform(o order, r *report) error {
	heartbeat := time.Duration(o.number("heartbeat")) * time.Second
	connection, err := amqp.DialConfig(o["url"], amqp.Config{Heartbeat: heartbeat, Locale: "en_US"})
	if err != nil {
		r.Refused = told("Dial", err)
		return nil
	}
	defer connection.Close()
	if o["listen"] != "" {
		if err := listen(connection, o["listen"], o["back"] == "1", r); err != nil {
			return err
		}
	}
	other, err := connection.Channel()
	if err != nil {
		return err
	}
	if err := other.Confirm(false); err != nil {
		return err
	}
	channel, err := connection.Channel()
	if err != nil {
		return err
	}
	closings, connectionClosings := watch(connection, channel, r)
	switch o["mode"] {
	case "confirm":
		err = channel.Confirm(false)
	case "tx":
		err = channel.Tx()
	}
	if err != nil {
		return err
	}
	for number := 0; number < o.number("count"); number++ {
		word := publish(channel, o, number)
		r.Lock()
		r.Seen = append(r.Seen, word)
		r.Unlock()
	}
	if o["mode"] == "tx" {
		for until := time.Now().Add(o.seconds("pause")); time.Now().Before(until) && !channel.IsClosed(); {
			time.Sleep(10 * time.Millisecond)
		}
		r.Commit = "committed"
		if err := channel.TxCommit(); err != nil {
			r.Commit = "error"
		}
	}
	if o["other_first"] == "1" {
		r.Other = otherChannelLives(connection, other, o)
	}
	for until := time.Now().Add(o.seconds("linger")); time.Now().Before(until) && !channel.IsClosed() && !r.hasSeen(o.number("expect")); {
		time.Sleep(50 * time.Millisecond)
	}
	if _, err := channel.QueueDeclarePassive(o["free"], false, false, false, false, nil); err != nil {
		r.Channel = told("error", err)
		select { // a channel says that it is not open a moment before it tells why
		case reason := <-closings:
			if reason != nil {
				r.Channel = told("NotifyClose", reason)
			}
		case <-time.After(time.Minute):
		}
	}
	if o["other_first"] != "1" {
		r.Other = otherChannelLives(connection, other, o)
	}
	select {
	case reason := <-connectionClosings:
		if reason != nil {
			r.Channel = told("connection NotifyClose", reason)
		}
	default:
	}
	return nil
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		o := order{"mode": "confirm", "count": "1", "heartbeat": "60", "linger": "0"}
		for _, word := range strings.Fields(lines.Text()) {
			name, value, _ := strings.Cut(word, "=")
			o[name] = value
		}
		r := &report{Seen: []string{}, Returns: []returned{}, Blocked: []string{}, Channel: "open", Other: ""}
		if err := perform(o, r); err != nil {
			json.NewEncoder(os.Stdout).Encode(map[string]string{"broken": err.Error()})
			continue
		}
		r.Lock()
		json.NewEncoder(os.Stdout).Encode(r)
		r.Unlock()
	}
}
